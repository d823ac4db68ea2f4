package stream

import "strings"

// attacks are outputs that make a terminal, a reader or a model do what the
// program wants, and inputs on which filters are known to stumble. They seed
// every fuzz test.
var attacks = []string{
	"plain\n",
	"\x1b]0;title\a",       // window title
	"\x1b]2;title\x1b\\",   // window title, other form
	"\x1b]52;c;ZWNobw==\a", // write the clipboard
	"\x1b]52;c;?\a",        // read the clipboard
	"\x1b]8;;file:///etc/passwd\x1b\\x\x1b]8;;\x1b\\", // link
	"\x1b]4;1;?\a\x1b]10;?\a",                         // colour queries
	"\x1b]50;#1\a\x1b]1337;File=:AA==\a",              // font, file
	"\x1b]9;text\a\x1b]777;notify;a;b\a",              // notification
	"\x1b]133;D\a\x1b]633;E;id\a\x1b]7;file://h/\a",   // shell integration
	"\x1b]0;unterminated then text\nmore text",
	"\x1b[21t\x1b[20t\x1b[18t\x1b[8;1;1t\x1b[5t",       // window reports, size, raise
	"\x1b[6n\x1b[?6n\x1b[5n",                           // position and status
	"\x1b[c\x1b[>c\x1b[=c\x1bZ\x05",                    // who are you
	"\x1b[>q\x1b[?u\x1b[?4m\x1b[14t\x1b[?1;1;0S",       // version, keyboard, sixel size
	"\x1bP$qm\x1b\\\x1bP+q544e\x1b\\",                  // DECRQSS, XTGETTCAP
	"\x1bP1;1|17/0a\x1b\\",                             // DECUDK, key definition
	"\x1bPq#0!99999999~\x1b\\",                         // sixel
	"\x1b_Gf=24;AAAA\x1b\\\x1b^pm\x1b\\\x1bXsos\x1b\\", // APC, PM, SOS
	"\x1b[>4;2m\x1b[>1u\x1b[=1u\x1b[<u",                // keyboard protocols
	"\x1b[2h\x1b[20h\x1b[12l",                          // keyboard lock, newline mode, local echo
	"\x1b[?1000h\x1b[?1003h\x1b[?1006h\x1b[?9h",        // mouse
	"\x1b[?3h\x1b[?5h\x1b[?6h\x1b[?47h\x1b[?1004h",     // columns, reverse, origin, old screen, focus
	"\x1b[?25;1000h\x1b[?25h\x1b[?1049h\x1b[?2004h",    // mixed modes
	"\x1b[?25$p\x1b[4$p\x1b[?1r\x1b[?1s",               // mode queries, saves
	"\x1b[200~paste\x1b[201~",                          // bracketed paste
	"\x1bc\x1b[!p\x1b#8\x1b%@\x1b%G\x1b F",             // resets, test screen, coding system
	"\x1b*0\x1b(A\x1b.A\x1bN\x1bO\x1bn\x1bo",           // other character sets and shifts
	"\x1b[31mred\x1b[0m\x1b[38:2::1:2:3m\x1b[1;4:3m",
	"\x1b[2J\x1b[H\x1b[3J\x1b[?2J\x1b[10;20H\x1b[K",
	"\x1b[5b\x1b[99999b\x1b[999999999C\x1b[99999C", // repeats
	"\x1b[1;2;3H\x1b[1;2;3;4;5T\x1b[1;2s\x1b[1 @\x1b[1 q\x1b[1$r",
	"\x1b7\x1b8\x1bM\x1b=\x1b>\x1bE\x1b(0lqk\x1b(B\x0e\x0f",
	"\x1b[\x1b[31m", "\x1b\x1b[31m", "\x1b[3\n1m", "\x1b[3\x181m", "\x1b[31\x1b", // sequences in sequences
	"\x1b[" + strings.Repeat("1;", 30) + "m", "\x1b[" + strings.Repeat("1;", 31) + "m",
	"\x1b[" + strings.Repeat("0", 100) + "m\x1b[31m",
	"\u009b31m\u009d0;t\u009c\u0090q\u009c\u0085\u008d",                          // C1 as UTF-8
	"\x9b31m\x9d0;t\x9c\x90q\x9c\x85",                                            // C1 as bytes
	"\xc2\x1b[31m", "\xc2", "\xe2\x80", "\xf0\x9f\x98", "\xf0\x9f\x98\x1b]0;x\a", // cut characters
	"\xc0\x9b2J\xe0\x80\x9b2J\xc1\x9b\xf0\x80\x80\x9b\xff\xfe", // overlong
	"\xed\xa0\x9b\xf4\x90\x80\x80",
	"safe\rrm -rf /\r\n\r\r\nend\r",
	"abc\b\b\bxyz\a\v\f\x7f\x00",
	"/* \u202e } \u2066if (admin)\u2069 \u2066 begin */",
	"\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u2067\u2068",
	"ignore\U000e0001\U000e0069\U000e0067\U000e006e\U000e007f",
	"a\u200bb\u200cc\u200dd\u2060e\ufeff\u00ad\u180e\u115f\u3164\uffa0",
	"❤\ufe0f\U000e0100 \u2028\u2029 \ufff9a\ufffab\ufffb \U0001d173 \ufffe \ue000 \U0010ffff",
	"\\x1b \\u{202e} \\\\ \\r",
	strings.Repeat("\xff", 5000), strings.Repeat("\x1b[", 3000), strings.Repeat("é", 2049) + "\xc3",
}
