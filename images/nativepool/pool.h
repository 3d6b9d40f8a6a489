/* Threads that go round: one dispatcher, then a part on the CPU, then a part that waits. */
#ifndef NATIVEPOOL_POOL_H
#define NATIVEPOOL_POOL_H

#include "load.h"

enum { MAX_THREADS = 256, BUCKETS = 41 };

extern const double bucket_bounds_seconds[BUCKETS];

struct histogram {
    unsigned long counts[BUCKETS + 1]; /* the last one has no upper bound */
    double sum_seconds;
};

/* Cumulative since the process started. */
struct totals {
    struct histogram task, dispatch;
    unsigned long tasks;
    double task_cpu_seconds, task_runqueue_seconds, blocked_seconds;
    /* What the tasks were told to take: how far their mean is from the load's is chance. */
    double drawn_cpu_seconds, drawn_blocking_seconds, drawn_dispatch_seconds;
};

enum waiting { PARK, SPIN };

/* Once, before anything else. */
void pool_init(enum waiting waiting, uint64_t seed);
/* From now on: tasks that have begun keep the old one. */
void pool_set_load(const struct load *load);
/* Called by the pool's owner alone; returns when the count is in effect (no surplus thread runs a
 * task any more) with the count that is: less where no more threads can be made. */
int pool_resize(int threads);
long pool_outstanding(void);
struct totals pool_totals(void);

#endif
