# Perl: regular expressions, sorting, processes, sockets, files, Unicode.
use strict;
use warnings;
use utf8;
use Fcntl qw(:flock :seek);
use File::Find;
use File::Temp qw(tempfile);
use IO::Socket::INET;
use POSIX qw(:sys_wait_h strftime);
use Socket;
use Time::HiRes qw(usleep time);

my $text = join "\n", map { "user$_\@example.com: " . $_ * $_ } 1 .. 5000;
my %square = $text =~ /^user(\d+)\@[\w.]+:\s(\d+)$/mg;
die "regex" unless keys %square == 5000 && $square{70} == 4900;
(my $s = "2024-01-31") =~ s/(?<y>\d+)-(?<m>\d+)-(?<d>\d+)/$+{d}.$+{m}.$+{y}/;
die $s unless $s eq "31.01.2024";
die "recursion" unless "((a)(b(c)))" =~ /^(\((?:[^()]|(?1))*\))$/;
die "unicode" unless "砂場" =~ /^\p{Han}{2}$/;
my @sorted = sort { $a <=> $b } map { ($_ * 7919) % 10007 } 1 .. 10000;
die "sort" unless $sorted[0] <= $sorted[1] && $sorted[-1] >= $sorted[-2];

my @pids = map { my $n = $_; my $p = fork // die "fork: $!"; if (!$p) { exit $n } $p } 1 .. 5;
my $sum = 0;
for (@pids) { waitpid $_, 0; $sum += WEXITSTATUS($?) }
die "exit codes $sum" unless $sum == 15;
die "backticks" unless `echo one; echo two` eq "one\ntwo\n";
open my $pipe, "-|", "seq", "3" or die;
my @lines = <$pipe>;
close $pipe or die "seq: $?";
die "pipe" unless @lines == 3;
local $SIG{ALRM} = sub { die "alarm\n" };
eval { alarm 1; select undef, undef, undef, 20; alarm 0; 1 } and die "no alarm";
die $@ unless $@ eq "alarm\n";

my ($fh, $file) = tempfile(UNLINK => 1);
flock $fh, LOCK_EX or die "flock: $!";
print $fh "x" x 1000 or die;
seek $fh, 0, SEEK_SET;
read $fh, my $back, 1000;
die "file" unless length $back == 1000;
my $found = 0;
find(sub { $found++ if /\.pm$/ }, grep { -d } @INC);
die "no modules" unless $found > 50;

my $server = IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1") or die "listen: $@";
my $client = fork // die;
if (!$client) {
    my $c = IO::Socket::INET->new(PeerAddr => "localhost", PeerPort => $server->sockport) or die "connect: $@";
    print $c "hello\n";
    exit 0;
}
my $conn = $server->accept or die "accept: $!";
die "line" unless <$conn> eq "hello\n";
waitpid $client, 0;
socketpair(my $x, my $y, AF_UNIX, SOCK_STREAM, PF_UNSPEC) or die "socketpair: $!";
syswrite $x, "ping";
sysread $y, my $got, 4;
die "pair" unless $got eq "ping";
die "time" unless strftime("%Y", gmtime 0) eq "1970";
print "ok\n";
