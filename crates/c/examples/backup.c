/* Keeps versions of a folder in a volume, and writes the difference from the previous version as a stream.
 *
 *   backup IMAGE FOLDER STREAM
 *
 * The image is created if it does not exist. `btrfs receive`, `ubtrfs receive` and ubtrfs_receive apply the streams, in
 * order. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ubtrfs.h>
#include <unistd.h>

#define CAPACITY_BYTES ((uint64_t)1 << 30)

/* Ends the program if a call failed. */
static int64_t check(int64_t result)
{
    if (result < 0) {
        fprintf(stderr, "backup: %s (%s)\n", ubtrfs_error_message(), strerror((int)-result));
        exit(1);
    }
    return result;
}

static void open_or_create(const char *image, struct ubtrfs_volume **volume,
                           struct ubtrfs_subvolume **root)
{
    int result = ubtrfs_volume_open(image, 0, volume);
    if (result == -ENOENT) {
        check(ubtrfs_volume_create(image, CAPACITY_BYTES, "backup", volume));
        check(ubtrfs_volume_root(*volume, root));
        check(ubtrfs_subvolume_create(*root, "/data", NULL));
        return;
    }
    check(result);
    check(ubtrfs_volume_root(*volume, root));
}

static int tell_problem(const struct ubtrfs_progress *progress, void *data)
{
    (void)data;
    if (progress->event == UBTRFS_EVENT_PROBLEM)
        fprintf(stderr, "backup: %s: %s\n", progress->path, progress->message);
    return 0;
}

static int count(const struct ubtrfs_subvolume_info *info, void *data)
{
    if (info->is_read_only && !info->is_deleted)
        ++*(unsigned *)data;
    return 0;
}

struct notes {
    const struct ubtrfs_subvolume *root;
    const char *folder;
    unsigned number;
};

/* The operations of a group: the attributes of the folder become durable together. */
static int note(void *data)
{
    const struct notes *notes = data;
    int result = ubtrfs_setxattr(notes->root, "/data", "user.origin", notes->folder,
                                 strlen(notes->folder), 0);
    if (result < 0)
        return result;
    return ubtrfs_setxattr(notes->root, "/data", "user.number", &notes->number,
                           sizeof notes->number, 0);
}

static int print_change(const struct ubtrfs_change *change, void *data)
{
    static const char *const kinds[] = {"removed", "added", "renamed", "changed"};
    (void)data;
    if (change->path[0])
        printf("%s: %s\n", kinds[change->kind], change->path);
    return 0;
}

/* Sends a version, and prints its changes since the previous one. */
static void send_version(const struct ubtrfs_subvolume *root, const struct ubtrfs_subvolume *version,
                         unsigned number, const char *stream)
{
    struct ubtrfs_send_options options = {0};
    struct ubtrfs_subvolume *before = NULL;
    char name[32];

    int fd = open(stream, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0) {
        perror(stream);
        exit(1);
    }
    if (number > 1) {
        snprintf(name, sizeof name, "/version-%u", number - 1);
        check(ubtrfs_subvolume_open(root, name, &before));
        check(ubtrfs_changes(before, version, print_change, NULL));
    }
    options.parent = before;
    check(ubtrfs_send(version, &options, fd));
    ubtrfs_subvolume_free(before);
    if (close(fd) < 0) {
        perror(stream);
        exit(1);
    }
}

static int print_issue(const struct ubtrfs_issue *issue, void *data)
{
    (void)data;
    fprintf(stderr, "backup: E%04u: %s\n", issue->number, issue->message);
    return 0;
}

int main(int argc, char **argv)
{
    struct ubtrfs_volume *volume;
    struct ubtrfs_subvolume *root, *version;
    struct ubtrfs_space space;
    struct ubtrfs_statistics statistics;
    struct ubtrfs_check_report report;
    struct notes notes;
    unsigned versions = 0;
    char name[32];

    if (argc != 4) {
        fprintf(stderr, "usage: backup IMAGE FOLDER STREAM\n");
        return 2;
    }
    open_or_create(argv[1], &volume, &root);
    if (check(ubtrfs_copy_from_host(root, argv[2], "/data/files", NULL, tell_problem, NULL)) > 0)
        return 1;
    check(ubtrfs_volume_subvolumes(volume, count, &versions));
    notes.root = root;
    notes.folder = argv[2];
    notes.number = versions + 1;
    check(ubtrfs_volume_group(volume, note, &notes));
    snprintf(name, sizeof name, "/version-%u", notes.number);
    check(ubtrfs_subvolume_snapshot(root, "/data", name, UBTRFS_READ_ONLY, &version));
    send_version(root, version, notes.number, argv[3]);

    check(ubtrfs_volume_space(volume, &space));
    check(ubtrfs_volume_statistics(volume, &statistics));
    printf("%s: at most %llu MiB, %s\n", name, (unsigned long long)(space.total_bytes >> 20),
           statistics.commits > 0 && space.free_bytes < space.total_bytes ? "committed" : "empty");
    ubtrfs_subvolume_free(version);
    ubtrfs_subvolume_free(root);
    check(ubtrfs_volume_close(volume));

    check(ubtrfs_check(argv[1], UBTRFS_CHECK_DATA, print_issue, NULL, &report));
    return report.errors > 0;
}
