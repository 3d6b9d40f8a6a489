#define _GNU_SOURCE
#include "pool.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* Beside the tasks that run: how many a load without a limit keeps ready. */
enum { READY = 512, STACK_BYTES = 65536 };
/* Tasks from one that is clocked to the next. Those that block come seldom and sleep dearly. */
enum { MOST_BETWEEN_CLOCKS = 64, MOST_BETWEEN_BLOCKING = 4 };

/* CPU clock and schedstat cost system calls: a task is asked for them once in so much work. */
static const double WORK_BETWEEN_CLOCKS_SECONDS = 300e-6;

/* five a decade, 1 us to 100 s: those of slimscale.inpod */
const double bucket_bounds_seconds[BUCKETS] = {
    1e-6, 1.6e-6, 2.5e-6, 4e-6, 6.3e-6, 1e-5, 1.6e-5, 2.5e-5, 4e-5, 6.3e-5, 1e-4,
    1.6e-4, 2.5e-4, 4e-4, 6.3e-4, 1e-3, 1.6e-3, 2.5e-3, 4e-3, 6.3e-3, 1e-2,
    1.6e-2, 2.5e-2, 4e-2, 6.3e-2, 1e-1, 1.6e-1, 2.5e-1, 4e-1, 6.3e-1, 1e0,
    1.6e0, 2.5e0, 4e0, 6.3e0, 1e1, 1.6e1, 2.5e1, 4e1, 6.3e1, 1e2};

/* Of one thread; `lock` is contended only while somebody asks for the totals. */
struct worker {
    pthread_mutex_t lock;
    struct totals totals;
    struct random random;
    pthread_t thread;
    int number;
    int until_clocks;
    int schedstat;
} __attribute__((aligned(128)));

static struct worker workers[MAX_THREADS];
static enum waiting waiting_kind;
static _Atomic(const struct load *) current_load;

static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t count_changed = PTHREAD_COND_INITIALIZER,
                      slot_freed = PTHREAD_COND_INITIALIZER,
                      worker_parked = PTHREAD_COND_INITIALIZER;
static atomic_int wanted_threads, slot_waiters;
static int made_threads, active_threads;
static atomic_long tasks_running;

static pthread_mutex_t dispatcher = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool dispatcher_held;
static atomic_int at_dispatcher __attribute__((aligned(128)));

static void observe(struct histogram *histogram, double seconds)
{
    int low = 0, high = BUCKETS; /* first bound that is not below */
    while (low < high) {
        const int middle = (low + high) / 2;
        if (bucket_bounds_seconds[middle] < seconds)
            low = middle + 1;
        else
            high = middle;
    }
    histogram->counts[low]++;
    histogram->sum_seconds += seconds;
}

static double thread_cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* How long this thread has been ready without a CPU: the second number of its schedstat. */
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

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void take_dispatcher(void)
{
    if (waiting_kind == PARK) {
        pthread_mutex_lock(&dispatcher);
        return;
    }
    while (atomic_exchange_explicit(&dispatcher_held, true, memory_order_acquire))
        while (atomic_load_explicit(&dispatcher_held, memory_order_relaxed))
            pause_cpu();
}

static void give_dispatcher(void)
{
    if (waiting_kind == PARK)
        pthread_mutex_unlock(&dispatcher);
    else
        atomic_store_explicit(&dispatcher_held, false, memory_order_release);
}

static bool take_slot(void)
{
    const long most = atomic_load(&current_load)->outstanding;
    if (atomic_fetch_add(&tasks_running, 1) < most || most == 0)
        return true;
    atomic_fetch_sub(&tasks_running, 1);
    return false;
}

static void give_slot(void)
{
    atomic_fetch_sub(&tasks_running, 1);
    if (atomic_load(&slot_waiters) == 0)
        return;
    pthread_mutex_lock(&pool_lock);
    pthread_cond_signal(&slot_freed);
    pthread_mutex_unlock(&pool_lock);
}

/* Returns with a task to do. Until then the thread is parked, unless it is wanted and only waits
 * for one of the N tasks to come free. */
static void await_task(struct worker *me)
{
    if (me->number < atomic_load(&wanted_threads) && take_slot())
        return;
    pthread_mutex_lock(&pool_lock);
    for (;;) {
        while (me->number >= atomic_load(&wanted_threads)) {
            active_threads--;
            pthread_cond_signal(&worker_parked);
            pthread_cond_wait(&count_changed, &pool_lock);
            active_threads++;
        }
        atomic_fetch_add(&slot_waiters, 1);
        const bool taken = take_slot();
        if (!taken)
            pthread_cond_wait(&slot_freed, &pool_lock);
        atomic_fetch_sub(&slot_waiters, 1);
        if (taken)
            break;
    }
    pthread_mutex_unlock(&pool_lock);
}

/* Time in which the dispatcher is held, without the waiting for it. */
static double pass_dispatcher(const struct load *load, double work)
{
    atomic_fetch_add_explicit(&at_dispatcher, 1, memory_order_relaxed);
    take_dispatcher();
    const double begin = monotonic_seconds();
    compute(work);
    const int there = atomic_load_explicit(&at_dispatcher, memory_order_relaxed);
    compute_shared(work * (there - 1) *
                   (load->contention_linear + load->contention_quadratic * there));
    atomic_fetch_sub_explicit(&at_dispatcher, 1, memory_order_relaxed);
    const double held = monotonic_seconds() - begin;
    give_dispatcher();
    return held;
}

static int tasks_between_clocks(const struct load *load)
{
    const double work = load->cpu.mean_seconds + load->dispatch.mean_seconds;
    const double tasks = WORK_BETWEEN_CLOCKS_SECONDS / (work + 1e-7);
    const int most = load->blocking.mean_seconds > 0 ? MOST_BETWEEN_BLOCKING : MOST_BETWEEN_CLOCKS;
    return tasks < 1 ? 1 : tasks > most ? most : (int)tasks;
}

static void one_task(struct worker *me)
{
    const struct load *load = atomic_load(&current_load);
    const double hold = draw(&load->dispatch, &me->random);
    const double work = draw(&load->cpu, &me->random), wait = draw(&load->blocking, &me->random);
    const double held = pass_dispatcher(load, hold);
    const bool clocks = --me->until_clocks <= 0;
    double cpu = 0, runqueue = 0, blocked = 0;
    if (clocks) {
        cpu = thread_cpu_seconds();
        runqueue = runqueue_seconds(me->schedstat);
    }
    const double start = monotonic_seconds();
    compute(work);
    if (wait > 0) {
        const double asleep = monotonic_seconds();
        wait_outside(wait);
        blocked = monotonic_seconds() - asleep;
    }
    const double wall = monotonic_seconds() - start;
    int weight = 0;
    if (clocks) {
        cpu = thread_cpu_seconds() - cpu;
        runqueue = runqueue_seconds(me->schedstat) - runqueue;
        weight = tasks_between_clocks(load);
        me->until_clocks = weight;
    }
    pthread_mutex_lock(&me->lock);
    observe(&me->totals.task, wall);
    observe(&me->totals.dispatch, held);
    me->totals.tasks++;
    me->totals.blocked_seconds += blocked;
    me->totals.task_cpu_seconds += weight * cpu;
    me->totals.task_runqueue_seconds += weight * runqueue;
    me->totals.drawn_cpu_seconds += work;
    me->totals.drawn_blocking_seconds += wait;
    me->totals.drawn_dispatch_seconds += hold;
    pthread_mutex_unlock(&me->lock);
}

static void *work(void *argument)
{
    struct worker *me = argument;
    setpriority(PRIO_PROCESS, 0, 0); /* of this thread: the one that made it may stand higher */
    prctl(PR_SET_TIMERSLACK, 1UL);   /* engines answer in time, not 50 us later */
    me->schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    for (;;) {
        await_task(me);
        one_task(me);
        give_slot();
    }
    return NULL;
}

void pool_init(enum waiting waiting, uint64_t seed)
{
    waiting_kind = waiting;
    for (int i = 0; i < MAX_THREADS; i++) {
        pthread_mutex_init(&workers[i].lock, NULL);
        workers[i].number = i;
        workers[i].random.state = (seed + 1) * 0x9e3779b97f4a7c15u ^ ((uint64_t)i << 32);
        workers[i].until_clocks = 1 + i % 7; /* not all at once */
    }
}

void pool_set_load(const struct load *load)
{
    struct load *copy = malloc(sizeof *copy);
    if (copy == NULL)
        abort();
    *copy = *load;
    /* The old one is never freed: a thread may look at it, and there are few. */
    atomic_store(&current_load, copy);
    pthread_mutex_lock(&pool_lock);
    pthread_cond_broadcast(&slot_freed); /* there may be more of them now */
    pthread_mutex_unlock(&pool_lock);
}

int pool_resize(int threads)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_mutex_lock(&pool_lock);
    atomic_store(&wanted_threads, threads);
    pthread_cond_broadcast(&count_changed);
    pthread_cond_broadcast(&slot_freed); /* those who wait there may be surplus */
    while (made_threads < threads) {
        struct worker *next = &workers[made_threads];
        if (pthread_create(&next->thread, &attributes, work, next) != 0) {
            atomic_store(&wanted_threads, made_threads);
            break;
        }
        made_threads++;
        active_threads++;
    }
    while (active_threads > atomic_load(&wanted_threads))
        pthread_cond_wait(&worker_parked, &pool_lock);
    pthread_mutex_unlock(&pool_lock);
    pthread_attr_destroy(&attributes);
    return atomic_load(&wanted_threads);
}

long pool_outstanding(void)
{
    const long most = atomic_load(&current_load)->outstanding;
    return most > 0 ? most : atomic_load(&wanted_threads) + READY;
}

static void add(struct histogram *total, const struct histogram *part)
{
    for (int i = 0; i <= BUCKETS; i++)
        total->counts[i] += part->counts[i];
    total->sum_seconds += part->sum_seconds;
}

struct totals pool_totals(void)
{
    struct totals sum = {0};
    pthread_mutex_lock(&pool_lock);
    const int made = made_threads;
    pthread_mutex_unlock(&pool_lock);
    for (int i = 0; i < made; i++) { /* parked ones too: counters never fall */
        struct worker *worker = &workers[i];
        pthread_mutex_lock(&worker->lock);
        add(&sum.task, &worker->totals.task);
        add(&sum.dispatch, &worker->totals.dispatch);
        sum.tasks += worker->totals.tasks;
        sum.blocked_seconds += worker->totals.blocked_seconds;
        sum.task_cpu_seconds += worker->totals.task_cpu_seconds;
        sum.task_runqueue_seconds += worker->totals.task_runqueue_seconds;
        sum.drawn_cpu_seconds += worker->totals.drawn_cpu_seconds;
        sum.drawn_blocking_seconds += worker->totals.drawn_blocking_seconds;
        sum.drawn_dispatch_seconds += worker->totals.drawn_dispatch_seconds;
        pthread_mutex_unlock(&worker->lock);
    }
    return sum;
}
