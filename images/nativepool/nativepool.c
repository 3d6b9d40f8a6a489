/* nativepool: a thread pool without an interpreter, to measure throughput against thread count.
 *
 *   nativepool [--waiting park|spin] [--seed N] [--poll-milliseconds N] [load fields]
 *
 * It follows the thread file of the contract (docs/contract.md, SLIMSCALE_THREADS_FILE) and answers
 * each line on its standard input with one line of JSON:
 *
 *   start          make the threads. Until then there are none, so that a quota can be set first.
 *   load FIELDS    another load from the next task on (see load.h); fields left out stay.
 *   sample         look at the thread file, then all counters of the contract since the start.
 *   quit           end; so does the end of the input.
 */
#define _GNU_SOURCE
#include "load.h"
#include "pool.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static int threads_applied, threads_asked;
static double process_start;
static bool started;

static double unix_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Opened by name each time: the kubelet swaps the file behind a symbolic link. 0: no good value. */
static int read_threads(const char *path)
{
    char text[64], *end;
    const int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (file < 0)
        return 0;
    const ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    if (length <= 0)
        return 0;
    text[length] = '\0';
    if (strspn(text, "0123456789") == 0)
        return 0;
    errno = 0;
    const unsigned long count = strtoul(text, &end, 10);
    if (end[strspn(end, " \t\r\n")] != '\0')
        return 0;
    return errno == ERANGE || count > MAX_THREADS ? MAX_THREADS : (int)count;
}

static void follow(const char *path)
{
    const int wanted = started ? read_threads(path) : 0;
    if (wanted != 0 && wanted != threads_asked) {
        threads_asked = wanted;
        threads_applied = pool_resize(wanted);
    }
}

static void print_histogram(const char *name, const struct histogram *histogram)
{
    printf("\"%s\":{\"counts\":[", name);
    for (int i = 0; i <= BUCKETS; i++)
        printf("%s%lu", i ? "," : "", histogram->counts[i]);
    printf("],\"sum_seconds\":%.9g},", histogram->sum_seconds);
}

static void print_sample(void)
{
    const struct totals totals = pool_totals();
    /* Taken together: a moment later many more tasks may have ended. */
    printf("{\"monotonic_seconds\":%.9f,\"sampled_at_seconds\":%.6f,", monotonic_seconds(),
           unix_seconds());
    printf("\"process_start_seconds\":%.6f,\"threads_applied\":%d,", process_start,
           threads_applied);
    print_histogram("task", &totals.task);
    print_histogram("dispatch", &totals.dispatch);
    printf("\"tasks_total\":%lu,\"tasks_outstanding\":%ld,", totals.tasks, pool_outstanding());
    if (access("/proc/self/schedstat", R_OK) == 0)
        printf("\"task_runqueue_seconds\":%.9g,", totals.task_runqueue_seconds);
    printf("\"drawn_cpu_seconds\":%.9g,\"drawn_blocking_seconds\":%.9g,"
           "\"drawn_dispatch_seconds\":%.9g,",
           totals.drawn_cpu_seconds, totals.drawn_blocking_seconds, totals.drawn_dispatch_seconds);
    printf("\"blocked_seconds\":%.9g,\"task_cpu_seconds\":%.9g}\n", totals.blocked_seconds,
           totals.task_cpu_seconds);
}

static void set_load(const char *fields, struct load *load)
{
    const char *why = "";
    if (!parse_load(fields, load, &why)) {
        printf("{\"error\":\"%s\"}\n", why);
        return;
    }
    pool_set_load(load);
    puts("{\"ok\":true}");
}

static void start(const char *path)
{
    const char *variable = getenv("SLIMSCALE_THREADS");
    started = true;
    follow(path);
    if (threads_applied == 0) {
        const int count = variable ? atoi(variable) : 0;
        threads_applied = pool_resize(count < 1 ? 1 : count > MAX_THREADS ? MAX_THREADS : count);
    }
    puts("{\"ok\":true}");
}

/* false: the program ends. */
static bool answer(const char *line, const char *path, struct load *load)
{
    if (strcmp(line, "quit") == 0)
        return false;
    if (strcmp(line, "start") == 0)
        start(path);
    else if (strcmp(line, "sample") == 0)
        follow(path), print_sample();
    else if (strncmp(line, "load ", 5) == 0)
        set_load(line + 5, load);
    else
        puts("{\"error\":\"commands are start, load FIELDS, sample and quit\"}");
    fflush(stdout);
    return true;
}

static void serve(const char *path, struct load *load, int poll_milliseconds)
{
    char text[4096];
    size_t have = 0;
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    for (;;) {
        const int ready = poll(&input, 1, poll_milliseconds);
        follow(path);
        if (ready <= 0)
            continue;
        const ssize_t got = read(STDIN_FILENO, text + have, sizeof text - 1 - have);
        if (got <= 0)
            return;
        have += (size_t)got;
        text[have] = '\0';
        char *line = text, *end;
        while ((end = strchr(line, '\n')) != NULL) {
            *end = '\0';
            if (!answer(line, path, load))
                return;
            line = end + 1;
        }
        have = strlen(line);
        memmove(text, line, have);
        if (have == sizeof text - 1)
            return; /* no command is that long */
    }
}

static int usage(const char *why)
{
    fprintf(stderr, "nativepool: %s\n", why);
    return 2;
}

int main(int count, char **arguments)
{
    const char *path = getenv("SLIMSCALE_THREADS_FILE"), *why = "";
    struct load load = {.cpu = {EXPONENTIAL, 1e-3, 1}, .dispatch = {DETERMINISTIC, 5e-6, 0}};
    enum waiting waiting = PARK;
    long poll_milliseconds = 200;
    uint64_t seed = 1;
    path = path && *path ? path : "/etc/slimscale/threads";
    process_start = unix_seconds();
    for (int i = 1; i < count; i++) {
        const char *value = i + 1 < count ? arguments[i + 1] : "";
        if (strcmp(arguments[i], "--waiting") == 0) {
            if (strcmp(value, "park") != 0 && strcmp(value, "spin") != 0)
                return usage("--waiting is park or spin");
            waiting = value[0] == 's' ? SPIN : PARK;
            i++;
        } else if (strcmp(arguments[i], "--seed") == 0) {
            seed = strtoull(value, NULL, 10);
            i++;
        } else if (strcmp(arguments[i], "--poll-milliseconds") == 0) {
            poll_milliseconds = atol(value);
            i++;
        } else if (!parse_load(arguments[i], &load, &why)) {
            return usage(why);
        }
    }
    if (poll_milliseconds < 1 || poll_milliseconds > 60000)
        return usage("--poll-milliseconds is a whole number from 1 to 60000");
    const double speed = calibrate();
    pool_init(waiting, seed);
    pool_set_load(&load);
    setpriority(PRIO_PROCESS, 0, -10); /* so that it answers while its threads fill all CPUs */
    printf("{\"ready\":true,\"loops_a_second\":%.6g,\"bucket_bounds_seconds\":[", speed);
    for (int i = 0; i < BUCKETS; i++)
        printf("%s%g", i ? "," : "", bucket_bounds_seconds[i]);
    puts("]}");
    fflush(stdout);
    serve(path, &load, (int)poll_milliseconds);
    fflush(stdout);
    _exit(0); /* the other threads end with the process */
}
