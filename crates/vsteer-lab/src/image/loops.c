/* The parallel loops of a Linux domain: a product of two matrices by OpenMP, again and again.
 *
 *     loops SCHEDULE ROWS THREADS BEGIN_S
 *
 * ROWS x ROWS doubles; a row of the product is an iteration, and they are dealt out statically (static), 10 at a time to whoever has
 * none (dynamic), or as a task each (task). It begins BEGIN_S seconds after the boot. Each product is a region with a barrier at its
 * end, and prints a line,
 *
 *     loop END_S TOOK_S
 *
 * END_S by CLOCK_REALTIME, which all domains of a Xen host have from the hypervisor; TOOK_S by CLOCK_MONOTONIC.
 * How threads wait at barriers is libgomp's own doing.
 */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHUNK = 10, SCHEDULES = 3 };
static const char *const names[SCHEDULES] = { "static", "dynamic", "task" };

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void row(int n, int i, const double *a, const double *b, double *c)
{
    for (int j = 0; j < n; j++)
        c[i * n + j] = 0;
    for (int k = 0; k < n; k++)
        for (int j = 0; j < n; j++)
            c[i * n + j] += a[i * n + k] * b[k * n + j];
}

static void multiply(int schedule, int n, const double *a, const double *b, double *c)
{
    if (schedule == 0) {
#pragma omp parallel for schedule(static)
        for (int i = 0; i < n; i++)
            row(n, i, a, b, c);
    } else if (schedule == 1) {
#pragma omp parallel for schedule(dynamic, CHUNK)
        for (int i = 0; i < n; i++)
            row(n, i, a, b, c);
    } else {
#pragma omp parallel
#pragma omp single
        for (int i = 0; i < n; i++) {
#pragma omp task firstprivate(i)
            row(n, i, a, b, c);
        }
    }
}

int main(int argc, char **argv)
{
    int schedule = 0, n = argc == 5 ? atoi(argv[2]) : 0, threads = argc == 5 ? atoi(argv[3]) : 0;
    double begin_s = argc == 5 ? atof(argv[4]) : 0;
    while (argc == 5 && schedule < SCHEDULES && strcmp(argv[1], names[schedule]))
        schedule++;
    if (schedule == SCHEDULES || n < CHUNK || n > 4096 || threads < 1 || threads > 64) {
        fprintf(stderr, "loops static|dynamic|task ROWS THREADS BEGIN_S: 10 to 4096 rows, 1 to 64 threads\n");
        return 2;
    }
    size_t all = (size_t)n * (size_t)n;
    double *a = malloc(all * sizeof *a), *b = malloc(all * sizeof *b), *c = malloc(all * sizeof *c);
    if (!a || !b || !c) {
        fprintf(stderr, "loops: no memory for %d rows\n", n);
        return 2;
    }
    for (size_t i = 0; i < all; i++) {
        a[i] = (double)(i % 7);
        b[i] = (double)(i % 5);
    }
    omp_set_num_threads(threads);
    struct timespec begin = { .tv_sec = (time_t)begin_s };
    clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &begin, NULL);
    double first = -1;
    for (;;) {
        double from = seconds(CLOCK_MONOTONIC);
        multiply(schedule, n, a, b, c);
        double took = seconds(CLOCK_MONOTONIC) - from, sum = 0;
        /* Whole numbers: in whatever order, the same to the last bit. */
        for (size_t i = 0; i < all; i++)
            sum += c[i];
        if (first >= 0 && sum != first) {
            fprintf(stderr, "loops: another product\n");
            return 1;
        }
        first = sum;
        printf("loop %.6f %.6f\n", seconds(CLOCK_REALTIME), took);
        fflush(stdout);
    }
}
