/* Reserves, finds, shares and zeroes ranges of files, and chooses the subvolume that a mount shows.
 *
 *   ranges IMAGE
 *
 * The image is made. */

#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ubtrfs.h>
#include <unistd.h>

#define KIB ((uint64_t)1 << 10)
#define LENGTH (64 * KIB)

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, ubtrfs_error_message()); \
            exit(1); \
        } \
    } while (0)

static void ranges(const struct ubtrfs_subvolume *root)
{
    static char data[LENGTH], read[LENGTH];
    struct ubtrfs_file *file, *copy;
    struct ubtrfs_stat stat;

    memset(data, 'x', sizeof data);
    CHECK(ubtrfs_open(root, "/file", O_RDWR | O_CREAT, 0644, &file) == 0);
    CHECK(ubtrfs_open(root, "/copy", O_RDWR | O_CREAT, 0644, &copy) == 0);
    CHECK(ubtrfs_pwrite(file, data, LENGTH, 0) == (int64_t)LENGTH && ubtrfs_fsync(file) == 0);
    CHECK(ubtrfs_clone_range(file, 16 * KIB, 32 * KIB, copy, 0) == 0);
    CHECK(ubtrfs_pread(copy, read, LENGTH, 0) == (int64_t)(32 * KIB) && !memcmp(read, data, 32 * KIB));
    CHECK(ubtrfs_clone_range(file, 1, 4 * KIB, copy, 0) == -EINVAL);

    CHECK(ubtrfs_fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 8 * KIB) == 0);
    CHECK(ubtrfs_lseek(file, 0, SEEK_DATA) == (int64_t)(8 * KIB));
    CHECK(ubtrfs_lseek(file, 0, SEEK_HOLE) == 0);
    CHECK(ubtrfs_lseek(file, 8 * KIB, SEEK_HOLE) == (int64_t)LENGTH);
    CHECK(ubtrfs_lseek(file, LENGTH, SEEK_DATA) == -ENXIO);
    CHECK(ubtrfs_lseek(file, 0, SEEK_SET) == -EINVAL);
    CHECK(ubtrfs_fallocate(file, FALLOC_FL_ZERO_RANGE, 60 * KIB, 8 * KIB) == 0);
    CHECK(ubtrfs_pread(file, read, 1, 60 * KIB) == 1 && read[0] == 0);
    CHECK(ubtrfs_fallocate(file, 0, 0, 128 * KIB) == 0);
    CHECK(ubtrfs_fstat(file, &stat) == 0 && stat.size == 128 * KIB);
    CHECK(ubtrfs_fallocate(file, FALLOC_FL_COLLAPSE_RANGE, 0, 4 * KIB) == -EINVAL);
    ubtrfs_close(copy);
    ubtrfs_close(file);
}

static int count(const struct ubtrfs_subvolume_info *info, void *data)
{
    (void)info;
    ++*(unsigned *)data;
    return 0;
}

static void subvolumes(const struct ubtrfs_volume *volume, const struct ubtrfs_subvolume *root)
{
    struct ubtrfs_subvolume *made, *same, *shown;
    unsigned listed = 0;
    uint64_t id;

    CHECK(ubtrfs_subvolume_create(root, "/made", &made) == 0);
    id = ubtrfs_subvolume_id(made);
    CHECK(ubtrfs_volume_subvolume_by_id(volume, id, &same) == 0 && ubtrfs_subvolume_id(same) == id);
    CHECK(ubtrfs_volume_subvolume_by_id(volume, id + 1, &shown) == -ENOENT && !shown);
    CHECK(ubtrfs_volume_default_subvolume(volume, &shown) == 0 && ubtrfs_subvolume_id(shown) == 5);
    ubtrfs_subvolume_free(shown);
    CHECK(ubtrfs_volume_set_default_subvolume(volume, made) == 0);
    CHECK(ubtrfs_volume_default_subvolume(volume, &shown) == 0 && ubtrfs_subvolume_id(shown) == id);
    CHECK(ubtrfs_volume_set_default_subvolume(volume, root) == 0);
    ubtrfs_subvolume_free(shown);
    ubtrfs_subvolume_free(same);
    ubtrfs_subvolume_free(made);
    CHECK(ubtrfs_subvolume_delete(root, "/made") == 0);
    CHECK(ubtrfs_volume_free_deleted_subvolumes(volume) == 0);
    CHECK(ubtrfs_volume_subvolumes(volume, count, &listed) == 0 && listed == 1);
}

int main(int argc, char **argv)
{
    struct ubtrfs_volume *volume;
    struct ubtrfs_subvolume *root;

    CHECK(argc == 2 && ubtrfs_volume_create(argv[1], (uint64_t)512 << 20, NULL, &volume) == 0);
    CHECK(ubtrfs_volume_root(volume, &root) == 0);
    ranges(root);
    subvolumes(volume, root);
    ubtrfs_subvolume_free(root);
    CHECK(ubtrfs_volume_close(volume) == 0);
    return 0;
}
