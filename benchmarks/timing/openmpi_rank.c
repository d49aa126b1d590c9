/* One rank of benchmarks.timing.openmpi: times MPI_Allreduce in every order of the ranks.
 *
 * Arguments: orders (host names, an order a line), result, bytes, warm-up rounds, repetitions. A communicator of its
 * own for every order; orders take turns, so that what drifts hits them alike. The sums are checked.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_ORDERS = 256, LINE = 65536 };

static void give_up(const char *why)
{
    fprintf(stderr, "%s\n", why);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

/* The place of this host in a line of names. */
static int place_in(char *line, const char *host)
{
    int place = 0;
    for (char *word = strtok(line, " \n"); word; word = strtok(NULL, " \n"), place++)
        if (!strcmp(word, host))
            return place;
    give_up("this host is in no order");
    return -1;
}

int main(int argc, char **argv)
{
    static char line[LINE];
    char host[256];
    MPI_Comm orders[MOST_ORDERS];
    int number = 0, world_rank, size;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    FILE *file = argc == 6 ? fopen(argv[1], "r") : NULL;
    if (!file || gethostname(host, sizeof host))
        give_up("usage: openmpi_rank ORDERS RESULT BYTES WARM_UP REPEATS");
    while (number < MOST_ORDERS && fgets(line, sizeof line, file))
        MPI_Comm_split(MPI_COMM_WORLD, 0, place_in(line, host), &orders[number++]);
    fclose(file);

    int elements = atoi(argv[3]) / (int)sizeof(float), warm_up = atoi(argv[4]), repeats = atoi(argv[5]);
    float *data = malloc(elements * sizeof *data);
    double *seconds = calloc((size_t)number * repeats, sizeof *seconds);
    for (int repeat = -warm_up; repeat < repeats; repeat++)
        for (int order = 0; order < number; order++) {
            int rank;
            MPI_Comm_rank(orders[order], &rank);
            for (int i = 0; i < elements; i++)
                data[i] = (float)(rank + 1);
            MPI_Barrier(orders[order]);
            double began = MPI_Wtime();
            MPI_Allreduce(MPI_IN_PLACE, data, elements, MPI_FLOAT, MPI_SUM, orders[order]);
            double took = MPI_Wtime() - began;
            for (int i = 0; i < elements; i++)
                if (data[i] != (float)(size * (size + 1) / 2))
                    give_up("the all-reduce gave a wrong sum");
            if (repeat >= 0)
                seconds[order * repeats + repeat] = took;
        }
    /* The slowest rank's. */
    if (world_rank == 0)
        MPI_Reduce(MPI_IN_PLACE, seconds, number * repeats, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    else
        MPI_Reduce(seconds, NULL, number * repeats, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (world_rank == 0) {
        file = fopen(argv[2], "w");
        if (!file)
            give_up("cannot write the result");
        for (int order = 0; order < number; order++)
            for (int repeat = 0; repeat < repeats; repeat++)
                fprintf(file, "%.6f%c", seconds[order * repeats + repeat], repeat + 1 < repeats ? ' ' : '\n');
        fclose(file);
    }
    MPI_Finalize();
    return 0;
}
