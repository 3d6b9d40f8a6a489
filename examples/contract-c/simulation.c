/* A simulation in C that follows SlimScale's contract (docs/contract.md): a pool of POSIX threads
 * behind one mutex, whose size follows the thread file, and which serves its metrics.
 *
 *   SLIMSCALE_THREADS_FILE   where the wanted count is (default /etc/slimscale/threads)
 *   SLIMSCALE_THREADS        the count to start with (default: whole CPUs of the quota)
 *   SLIMSCALE_METRICS_PORT   where /metrics is served (default 9464; 0: any, printed)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { MAX_THREADS = 64, BUCKETS = 18, BACKLOG = 512, POLL_MILLISECONDS = 200 };

static const double bounds[BUCKETS] = {1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4,
                                       1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 1e-1, 1.0,  10.0};

struct histogram {
    unsigned long counts[BUCKETS + 1]; /* the last one has no upper bound */
    double sum;
};

/* Of one thread; `lock` is contended only while somebody asks for the metrics. */
struct worker {
    pthread_mutex_t lock;
    struct histogram task, dispatch;
    double cpu_seconds;
    double runqueue_seconds;
    pthread_t thread;
};

static struct worker workers[MAX_THREADS];
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work_waits = PTHREAD_COND_INITIALIZER;
static pthread_cond_t room_waits = PTHREAD_COND_INITIALIZER;
static pthread_cond_t worker_left = PTHREAD_COND_INITIALIZER;
static unsigned queue[BACKLOG]; /* task sizes; a ring */
static unsigned queue_head, queued, running_tasks;
static int wanted_threads, live_threads;
static atomic_int threads_applied;
static volatile sig_atomic_t stopping;
static double process_start;

static double seconds_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void observe(struct histogram *histogram, double seconds)
{
    int bucket = 0;
    while (bucket < BUCKETS && seconds > bounds[bucket])
        bucket++;
    histogram->counts[bucket]++;
    histogram->sum += seconds;
}

/* One step: some arithmetic, as long as `size` says. */
static double simulate(unsigned size)
{
    volatile double x = 0.5;
    for (unsigned i = 0; i < size; i++)
        x = 3.7 * x * (1.0 - x);
    return x;
}

/* How long this thread has waited for a CPU so far: the second number of its schedstat. Without it
 * SlimScale cannot tell a task that waits for an engine from one that waits for a CPU. */
static double runqueue_seconds(int schedstat)
{
    char text[96];
    const ssize_t length = schedstat < 0 ? -1 : pread(schedstat, text, sizeof text - 1, 0);
    if (length <= 0)
        return 0;
    text[length] = '\0';
    const char *space = strchr(text, ' ');
    return space == NULL ? 0 : 1e-9 * strtod(space, NULL);
}

/* The thread that leaves takes itself off the count before it ends, so that the owner of the pool
 * acknowledges a smaller count only when no surplus task runs any more. */
static void *work(void *argument)
{
    struct worker *me = argument;
    const int number = (int)(me - workers);
    const int schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    pthread_mutex_lock(&queue_lock);
    for (;;) {
        while (!stopping && queued == 0 && number < wanted_threads)
            pthread_cond_wait(&work_waits, &queue_lock);
        if (stopping || number >= wanted_threads)
            break;
        /* Dispatch: from here, where the lock is ours, to where it is given back. Waiting for
         * the lock is not part of it. */
        const double begin = seconds_of(CLOCK_MONOTONIC);
        const unsigned size = queue[queue_head];
        queue_head = (queue_head + 1) % BACKLOG;
        queued--;
        running_tasks++;
        pthread_cond_signal(&room_waits);
        const double held = seconds_of(CLOCK_MONOTONIC) - begin;
        pthread_mutex_unlock(&queue_lock);
        const double cpu = seconds_of(CLOCK_THREAD_CPUTIME_ID);
        const double queued = runqueue_seconds(schedstat);
        const double start = seconds_of(CLOCK_MONOTONIC);
        simulate(size);
        const double wall = seconds_of(CLOCK_MONOTONIC) - start;
        pthread_mutex_lock(&me->lock);
        observe(&me->dispatch, held);
        observe(&me->task, wall);
        me->cpu_seconds += seconds_of(CLOCK_THREAD_CPUTIME_ID) - cpu;
        me->runqueue_seconds += runqueue_seconds(schedstat) - queued;
        pthread_mutex_unlock(&me->lock);

        pthread_mutex_lock(&queue_lock);
        running_tasks--;
    }
    live_threads--;
    pthread_cond_signal(&worker_left);
    pthread_mutex_unlock(&queue_lock);
    if (schedstat >= 0)
        close(schedstat);
    return NULL;
}

/* The two numbers of a file, or one and `otherwise`; false where there is no number. */
static bool read_numbers(const char *path, double otherwise, double *first, double *second)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    const int found = fscanf(file, "%lf %lf", first, second);
    fclose(file);
    if (found == 1)
        *second = otherwise;
    return found >= 1;
}

/* Whole CPUs of the cgroup's quota (v2, then v1), else of the machine; at least 1. */
static int quota_threads(void)
{
    double quota = -1, period = 0, unused;
    if (!read_numbers("/sys/fs/cgroup/cpu.max", 100000, &quota, &period) &&
        read_numbers("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", 0, &quota, &unused))
        (void)read_numbers("/sys/fs/cgroup/cpu/cpu.cfs_period_us", 0, &period, &unused);
    double cpus = (double)sysconf(_SC_NPROCESSORS_ONLN);
    if (quota > 0 && period > 0 && quota / period < cpus)
        cpus = quota / period;
    return cpus < 1 ? 1 : cpus > MAX_THREADS ? MAX_THREADS : (int)cpus;
}

/* Called by the pool's owner alone. Returns when `threads` is in effect, so that it may be
 * acknowledged; the count in effect is less where no more threads can be made. */
static int resize(int threads)
{
    const int before = wanted_threads;
    pthread_mutex_lock(&queue_lock);
    wanted_threads = threads;
    pthread_cond_broadcast(&work_waits);
    while (live_threads > threads && !stopping)
        pthread_cond_wait(&worker_left, &queue_lock);
    pthread_mutex_unlock(&queue_lock);
    for (int i = threads; i < before; i++)
        pthread_join(workers[i].thread, NULL);
    pthread_mutex_lock(&queue_lock);
    for (int i = before; i < threads; i++) {
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) {
            wanted_threads = i;
            break;
        }
        live_threads++;
    }
    const int in_effect = wanted_threads;
    pthread_mutex_unlock(&queue_lock);
    return in_effect;
}

/* 0: there is no good value; keep what is in use. A count above the most is the most. */
static int parse_threads(const char *text)
{
    char *end;
    text += strspn(text, " \t\r\n");
    if (*text < '0' || *text > '9')
        return 0;
    errno = 0;
    const unsigned long count = strtoul(text, &end, 10);
    if (end[strspn(end, " \t\r\n")] != '\0')
        return 0;
    return errno == ERANGE || count > MAX_THREADS ? MAX_THREADS : (int)count;
}

/* Opened by name each time: the kubelet swaps the file behind a symbolic link. */
static int read_threads(const char *path)
{
    char text[64];
    const int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (file < 0)
        return 0;
    const ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    if (length <= 0 || length == (ssize_t)sizeof text - 1)
        return 0;
    text[length] = '\0';
    const int threads = strlen(text) == (size_t)length ? parse_threads(text) : 0;
    static bool said; /* once for each bad value, not five times a second */
    if (threads == 0 && !said)
        fprintf(stderr, "%s: \"%.16s\" is no thread count; write a whole number above 0\n", path, text);
    said = threads == 0;
    return threads;
}

static void print_histogram(FILE *out, const char *name, const struct histogram *histogram)
{
    unsigned long cumulative = 0;
    fprintf(out, "# TYPE slimscale_%s histogram\n", name);
    for (int i = 0; i < BUCKETS; i++) {
        cumulative += histogram->counts[i];
        fprintf(out, "slimscale_%s_bucket{le=\"%g\"} %lu\n", name, bounds[i], cumulative);
    }
    cumulative += histogram->counts[BUCKETS];
    fprintf(out, "slimscale_%s_bucket{le=\"+Inf\"} %lu\n", name, cumulative);
    fprintf(out, "slimscale_%s_sum %.9g\n", name, histogram->sum);
    fprintf(out, "slimscale_%s_count %lu\n", name, cumulative);
}

static void add(struct histogram *total, const struct histogram *part)
{
    for (int i = 0; i <= BUCKETS; i++)
        total->counts[i] += part->counts[i];
    total->sum += part->sum;
}

static void print_value(FILE *out, const char *name, const char *kind, double value)
{
    fprintf(out, "# TYPE slimscale_%s %s\nslimscale_%s %.17g\n", name, kind, name, value);
}

static void print_metrics(FILE *out)
{
    struct histogram task = {0}, dispatch = {0};
    double cpu_seconds = 0, runqueue = 0;
    unsigned long tasks = 0;
    for (int i = 0; i < MAX_THREADS; i++) { /* those that have left too: counters never fall */
        pthread_mutex_lock(&workers[i].lock);
        add(&task, &workers[i].task);
        add(&dispatch, &workers[i].dispatch);
        cpu_seconds += workers[i].cpu_seconds;
        runqueue += workers[i].runqueue_seconds;
        pthread_mutex_unlock(&workers[i].lock);
    }
    for (int i = 0; i <= BUCKETS; i++)
        tasks += task.counts[i];
    pthread_mutex_lock(&queue_lock);
    const unsigned outstanding = queued + running_tasks;
    pthread_mutex_unlock(&queue_lock);
    print_histogram(out, "task_seconds", &task);
    print_histogram(out, "dispatch_seconds", &dispatch);
    print_value(out, "tasks_total", "counter", (double)tasks);
    print_value(out, "tasks_outstanding", "gauge", outstanding);
    print_value(out, "threads_applied", "gauge", atomic_load(&threads_applied));
    print_value(out, "task_cpu_seconds_total", "counter", cpu_seconds);
    if (access("/proc/self/schedstat", R_OK) == 0)
        print_value(out, "task_runqueue_seconds_total", "counter", runqueue);
    print_value(out, "process_start_time_seconds", "gauge", process_start);
}

static void answer(int connection)
{
    const struct timeval patience = {.tv_sec = 2};
    char request[1024], *body = NULL;
    size_t length = 0;
    setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    const ssize_t got = recv(connection, request, sizeof request - 1, 0);
    if (got <= 0)
        return;
    request[got] = '\0';
    const bool found = strncmp(request, "GET /metrics ", 13) == 0;
    FILE *page = open_memstream(&body, &length);
    if (page == NULL)
        return;
    if (found)
        print_metrics(page);
    if (fclose(page) == 0) {
        dprintf(connection,
                "HTTP/1.0 %s\r\nContent-Type: text/plain; version=0.0.4\r\n"
                "Content-Length: %zu\r\nConnection: close\r\n\r\n",
                found ? "200 OK" : "404 Not Found", length);
        for (size_t sent = 0; sent < length;) {
            const ssize_t more = send(connection, body + sent, length - sent, MSG_NOSIGNAL);
            if (more <= 0)
                break;
            sent += (size_t)more;
        }
    }
    free(body);
}

/* One connection at a time, each bounded in time. */
static void *serve(void *argument)
{
    const int listener = *(int *)argument;
    for (;;) {
        const int connection = accept(listener, NULL, NULL);
        if (connection >= 0) {
            answer(connection);
            close(connection);
        }
    }
    return NULL;
}

static int listen_on(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    socklen_t size = sizeof address;
    const int yes = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listener, 8) != 0 || getsockname(listener, (struct sockaddr *)&address, &size) != 0) {
        perror("metrics are not served");
        return -1;
    }
    printf("metrics on port %d\n", ntohs(address.sin_port));
    fflush(stdout);
    return listener;
}

/* The loop that makes work: as fast as the pool takes it. */
static void *produce(void *argument)
{
    const unsigned size = *(const unsigned *)argument;
    while (!stopping) {
        pthread_mutex_lock(&queue_lock);
        while (queued == BACKLOG)
            pthread_cond_wait(&room_waits, &queue_lock);
        queue[(queue_head + queued) % BACKLOG] = size;
        queued++;
        pthread_cond_signal(&work_waits);
        pthread_mutex_unlock(&queue_lock);
    }
    return NULL;
}

static void stop(int signal_number)
{
    (void)signal_number;
    stopping = 1;
}

int main(void)
{
    static unsigned size = 20000;
    static int listener;
    const char *path = getenv("SLIMSCALE_THREADS_FILE");
    const char *start = getenv("SLIMSCALE_THREADS"), *port = getenv("SLIMSCALE_METRICS_PORT");
    pthread_t producer, server;
    path = path && *path ? path : "/etc/slimscale/threads";
    process_start = seconds_of(CLOCK_REALTIME);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGTERM, stop);
    signal(SIGINT, stop);
    for (int i = 0; i < MAX_THREADS; i++)
        pthread_mutex_init(&workers[i].lock, NULL);

    int asked = read_threads(path);
    if (asked == 0)
        asked = start ? parse_threads(start) : 0;
    if (asked == 0)
        asked = quota_threads();
    int applied = resize(asked);
    atomic_store(&threads_applied, applied);
    if (pthread_create(&producer, NULL, produce, &size) != 0)
        return 1;
    listener = listen_on(port && *port ? atoi(port) : 9464);
    if (listener >= 0 && pthread_create(&server, NULL, serve, &listener) != 0)
        return 1;

    /* This thread owns the pool: it looks, applies, and only then acknowledges. Where the system
     * refused a thread, the next look tries again. */
    while (!stopping) {
        const int wanted = read_threads(path);
        if (wanted != 0 && wanted != asked) {
            asked = wanted;
            applied = -1;
        }
        if (applied != asked) {
            applied = resize(asked);
            atomic_store(&threads_applied, applied);
        }
        usleep(POLL_MILLISECONDS * 1000);
    }
    return 0; /* the other threads end with the process */
}
