/* What one task is made of: three random times, and what crowding adds to the dispatcher. */
#ifndef NATIVEPOOL_LOAD_H
#define NATIVEPOOL_LOAD_H

#include <stdbool.h>
#include <stdint.h>

enum family { DETERMINISTIC, EXPONENTIAL, LOGNORMAL, BIMODAL };

struct distribution {
    enum family family;
    double mean_seconds;
    double squared_variation; /* of LOGNORMAL and BIMODAL */
};

struct load {
    struct distribution cpu;      /* computing, in parallel */
    struct distribution blocking; /* waiting for something that is no CPU: an engine, a disk */
    struct distribution dispatch; /* computing while the one dispatcher is held */
    double contention_linear;     /* relative growth of the dispatch with each other thread there */
    double contention_quadratic;  /* and with each pair: S*(1 + a1*(q-1) + b1*q*(q-1)) for q there */
    long outstanding;             /* tasks in circulation; 0: more than threads, always */
};

/* "cpu=exponential:5e-5:1 blocking=deterministic:0:0 ... outstanding=0"; false: `why` says what is
 * wrong with it, and `load` is as it was. Keys that are absent keep their value. */
bool parse_load(const char *text, struct load *load, const char **why);

/* A generator of a thread's own; any seed but 0. */
struct random {
    uint64_t state;
};

double draw(const struct distribution *distribution, struct random *random);

/* Finds out how long the loop of `compute` takes here. Call once, before any quota is set. */
double calibrate(void);
/* Burn as much CPU as `seconds` on a CPU of one's own would be, however long that takes here. */
void compute(double seconds);
/* The same in an array that all threads share: its cache lines come from whoever had them last. */
void compute_shared(double seconds);
/* Sleep, with the kernel's timer. */
void wait_outside(double seconds);

double monotonic_seconds(void);

#endif
