// POSIX and System V means of communication between processes, as C sees them.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/msg.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(x) do { if (!(x)) { printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #x, strerror(errno)); exit(1); } } while (0)

static volatile sig_atomic_t value;
static void on_signal(int sig, siginfo_t *info, void *context) { value = info->si_value.sival_int; }

int main(void) {
  // shared memory and a semaphore by name
  int fd = shm_open("/mem", O_CREAT | O_EXCL | O_RDWR, 0600);
  CHECK(fd >= 0 && ftruncate(fd, 4096) == 0);
  int *p = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(p != MAP_FAILED);
  sem_t *s = sem_open("/sem", O_CREAT | O_EXCL, 0600, 0);
  CHECK(s != SEM_FAILED);
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) { *p = 42; sem_post(s); _exit(0); }
  CHECK(sem_wait(s) == 0 && *p == 42);
  CHECK(waitpid(pid, 0, 0) == pid && shm_unlink("/mem") == 0 && sem_unlink("/sem") == 0);

  // System V
  int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
  CHECK(id >= 0);
  char *q = shmat(id, 0, 0);
  CHECK(q != (void *)-1);
  strcpy(q, "sysv");
  CHECK(shmdt(q) == 0 && shmctl(id, IPC_RMID, 0) == 0);
  id = semget(IPC_PRIVATE, 1, IPC_CREAT | 0600);
  CHECK(id >= 0);
  struct sembuf up = {0, 1, 0}, down = {0, -1, IPC_NOWAIT};
  CHECK(semop(id, &up, 1) == 0 && semop(id, &down, 1) == 0 && semop(id, &down, 1) == -1 && errno == EAGAIN);
  CHECK(semctl(id, 0, IPC_RMID) == 0);
  id = msgget(IPC_PRIVATE, IPC_CREAT | 0600);
  CHECK(id >= 0);
  struct { long type; char text[8]; } m = {7, "message"}, got;
  CHECK(msgsnd(id, &m, sizeof m.text, 0) == 0 && msgrcv(id, &got, sizeof got.text, 7, 0) == sizeof got.text && !strcmp(got.text, "message"));
  CHECK(msgctl(id, IPC_RMID, 0) == 0);

  // a mutex and a condition in shared memory that outlive their owner
  pthread_mutexattr_t a;
  pthread_mutexattr_init(&a);
  pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_t *mu = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pthread_mutex_init(mu, &a);
  if ((pid = fork()) == 0) { pthread_mutex_lock(mu); _exit(0); }
  CHECK(waitpid(pid, 0, 0) == pid && pthread_mutex_lock(mu) == EOWNERDEAD && pthread_mutex_consistent(mu) == 0 && pthread_mutex_unlock(mu) == 0);

  // signals with a value, descriptors for signals, timers and events
  struct sigaction sa = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
  CHECK(sigaction(SIGRTMIN + 1, &sa, 0) == 0 && sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = 99}) == 0 && value == 99);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);
  CHECK(sigprocmask(SIG_BLOCK, &set, 0) == 0);
  int sfd = signalfd(-1, &set, SFD_NONBLOCK), tfd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), efd = eventfd(0, EFD_NONBLOCK), ep = epoll_create1(0);
  CHECK(sfd >= 0 && tfd >= 0 && efd >= 0 && ep >= 0);
  for (int *f = (int[]){sfd, tfd, efd, -1}; *f >= 0; f++) CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, *f, &(struct epoll_event){EPOLLIN, {.fd = *f}}) == 0);
  CHECK(timerfd_settime(tfd, 0, &(struct itimerspec){.it_value = {0, 1000000}}, 0) == 0 && kill(getpid(), SIGUSR2) == 0 && eventfd_write(efd, 1) == 0);
  for (int left = 3; left;) {
    struct epoll_event e;
    CHECK(epoll_wait(ep, &e, 1, 10000) == 1);
    char buffer[256];
    CHECK(read(e.data.fd, buffer, sizeof buffer) > 0);
    left--;
  }

  // a timer with a thread's signal, clocks, entropy, limits
  timer_t timer;
  value = 0;
  struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 1, .sigev_value = {.sival_int = 5}};
  CHECK(timer_create(CLOCK_MONOTONIC, &ev, &timer) == 0 && timer_settime(timer, 0, &(struct itimerspec){.it_value = {0, 1000000}}, 0) == 0);
  while (value != 5) usleep(1000);
  struct timespec t1, t2;
  CHECK(clock_gettime(CLOCK_MONOTONIC, &t1) == 0 && usleep(2000) == 0 && clock_gettime(CLOCK_MONOTONIC, &t2) == 0);
  CHECK((t2.tv_sec - t1.tv_sec) * 1000000000L + t2.tv_nsec - t1.tv_nsec >= 2000000);
  CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t1) == 0 && clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t1) == 0);
  char random[32] = {0}, zero[32] = {0};
  CHECK(getrandom(random, sizeof random, 0) == sizeof random && memcmp(random, zero, sizeof random) != 0);
  struct rlimit r;
  CHECK(getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur >= 64 && getrlimit(RLIMIT_STACK, &r) == 0);
  struct rusage u;
  CHECK(getrusage(RUSAGE_CHILDREN, &u) == 0);
  puts("ok");
  return 0;
}
