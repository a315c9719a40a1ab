/* Preloaded into a program, sets its clock forward or back by the seconds that the file STOA_TEST_CLOCK says now. How much
   time passes (CLOCK_MONOTONIC) stays as it is, as when somebody sets the clock of a machine. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long offset(void) {
    char text[32];
    const char *path = getenv("STOA_TEST_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return 0;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    text[length > 0 ? length : 0] = 0;
    return strtol(text, NULL, 10);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int outcome = syscall(SYS_clock_gettime, clock, now);
    if (outcome == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += offset();
    return outcome;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int outcome = syscall(SYS_gettimeofday, now, zone);
    if (outcome == 0 && now) now->tv_sec += offset();
    return outcome;
}

time_t time(time_t *seconds) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (seconds) *seconds = now.tv_sec;
    return now.tv_sec;
}
