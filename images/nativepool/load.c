#define _GNU_SOURCE
#include "load.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SHARED_LINES = 16, WORDS_A_LINE = 8, CALIBRATIONS = 12, LOOPS = 100000 };

static const double LONGEST_MEAN = 10.0, MOST_VARIATION = 100.0, MOST_CONTENTION = 100.0;

static double loops_a_second = 5e8, shared_loops_a_second = 5e8;
static volatile uint64_t shared[SHARED_LINES * WORDS_A_LINE];

double monotonic_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Each step needs the one before, so that its speed does not depend on the compiler's mood. */
static void spin(uint64_t loops)
{
    uint64_t x = loops | 1;
    for (uint64_t i = 0; i < loops; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        __asm__ volatile("" : "+r"(x));
    }
}

static void spin_shared(uint64_t loops)
{
    for (uint64_t i = 0; i < loops; i++)
        shared[(i % SHARED_LINES) * WORDS_A_LINE]++;
}

static double fastest(void (*loop)(uint64_t))
{
    double best = 1e9;
    for (int i = 0; i < CALIBRATIONS; i++) { /* the others were disturbed */
        const double begin = monotonic_seconds();
        loop(LOOPS);
        const double took = monotonic_seconds() - begin;
        best = took < best ? took : best;
    }
    return LOOPS / best;
}

double calibrate(void)
{
    loops_a_second = fastest(spin);
    shared_loops_a_second = fastest(spin_shared);
    return loops_a_second;
}

void compute(double seconds)
{
    spin((uint64_t)(seconds * loops_a_second));
}

void compute_shared(double seconds)
{
    spin_shared((uint64_t)(seconds * shared_loops_a_second));
}

void wait_outside(double seconds)
{
    struct timespec left = {.tv_sec = (time_t)seconds,
                            .tv_nsec = (long)(1e9 * (seconds - floor(seconds)))};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
        ;
}

/* splitmix64 (Steele, Lea, Flood 2014): one multiplication chain a number, good in all bits. */
static uint64_t next_bits(struct random *random)
{
    uint64_t z = random->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Uniform in (0, 1]. */
static double uniform(struct random *random)
{
    return ((double)(next_bits(random) >> 11) + 1.0) * 0x1p-53;
}

double draw(const struct distribution *distribution, struct random *random)
{
    const double mean = distribution->mean_seconds, variation = distribution->squared_variation;
    if (mean <= 0)
        return 0;
    switch (distribution->family) {
    case DETERMINISTIC:
        return mean;
    case EXPONENTIAL:
        return -mean * log(uniform(random));
    case LOGNORMAL: {
        const double variance = log1p(variation); /* of the logarithm */
        const double normal =
            sqrt(-2.0 * log(uniform(random))) * cos(2.0 * M_PI * uniform(random));
        return mean * exp(normal * sqrt(variance) - variance / 2);
    }
    case BIMODAL: /* m/2 mostly, m*(1 + 2c) with probability 1/(1 + 4c): mean m, variation c */
        return uniform(random) <= 1 / (1 + 4 * variation) ? mean * (1 + 2 * variation) : mean / 2;
    }
    return mean;
}

static bool parse_number(const char *text, double most, double *value)
{
    char *end;
    const double number = strtod(text, &end);
    if (end == text || *end != '\0' || !(number >= 0 && number <= most)) /* NaN is refused too */
        return false;
    *value = number;
    return true;
}

/* "family:mean seconds:squared variation" */
static bool parse_distribution(char *text, struct distribution *distribution)
{
    static const char *const names[] = {"deterministic", "exponential", "lognormal", "bimodal"};
    char *rest = NULL;
    const char *family = strtok_r(text, ":", &rest), *mean = strtok_r(NULL, ":", &rest);
    const char *variation = strtok_r(NULL, ":", &rest);
    if (family == NULL || mean == NULL || variation == NULL || strtok_r(NULL, ":", &rest) != NULL)
        return false;
    for (int i = 0; i < 4; i++) {
        if (strcmp(family, names[i]) == 0) {
            distribution->family = (enum family)i;
            return parse_number(mean, LONGEST_MEAN, &distribution->mean_seconds) &&
                   parse_number(variation, MOST_VARIATION, &distribution->squared_variation);
        }
    }
    return false;
}

static bool parse_field(char *field, struct load *load)
{
    char *value = strchr(field, '=');
    double number;
    if (value == NULL)
        return false;
    *value++ = '\0';
    if (strcmp(field, "cpu") == 0)
        return parse_distribution(value, &load->cpu);
    if (strcmp(field, "blocking") == 0)
        return parse_distribution(value, &load->blocking);
    if (strcmp(field, "dispatch") == 0)
        return parse_distribution(value, &load->dispatch);
    if (strcmp(field, "contention_linear") == 0)
        return parse_number(value, MOST_CONTENTION, &load->contention_linear);
    if (strcmp(field, "contention_quadratic") == 0)
        return parse_number(value, MOST_CONTENTION, &load->contention_quadratic);
    if (strcmp(field, "outstanding") == 0 && parse_number(value, 1e6, &number)) {
        load->outstanding = (long)number;
        return true;
    }
    return false;
}

bool parse_load(const char *text, struct load *load, const char **why)
{
    struct load parsed = *load;
    char copy[1024], *rest = NULL;
    if (strlen(text) >= sizeof copy) {
        *why = "the load is longer than 1023 characters";
        return false;
    }
    strcpy(copy, text);
    for (char *field = strtok_r(copy, " \t\r\n", &rest); field != NULL;
         field = strtok_r(NULL, " \t\r\n", &rest)) {
        if (!parse_field(field, &parsed)) {
            *why = "fields are cpu, blocking and dispatch=family:seconds:variation,"
                   " contention_linear, contention_quadratic and outstanding=number";
            return false;
        }
    }
    if (parsed.cpu.mean_seconds + parsed.blocking.mean_seconds + parsed.dispatch.mean_seconds <
        1e-7) {
        *why = "a task takes at least 1e-7 seconds";
        return false;
    }
    *load = parsed;
    return true;
}
