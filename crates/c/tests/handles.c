/* Uses and frees handles in forks of the program, and after the volume was closed.
 *
 *   handles IMAGE
 *
 * The image is made. At the end it has "/file" and "/after", with the content "before and after". */

#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ubtrfs.h>
#include <unistd.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, ubtrfs_error_message()); \
            exit(1); \
        } \
    } while (0)

struct handles {
    struct ubtrfs_volume *volume;
    struct ubtrfs_subvolume *root, *snapshot;
    struct ubtrfs_file *file;
    struct ubtrfs_dir *dir;
};

static void free_all(struct handles *of)
{
    ubtrfs_close(of->file);
    ubtrfs_closedir(of->dir);
    ubtrfs_subvolume_free(of->snapshot);
    ubtrfs_subvolume_free(of->root);
}

/* Returns the exit status of `work` in a fork. */
static int in_fork(void (*work)(struct handles *), struct handles *of)
{
    int status;
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        /* A lock that stays locked shall not stop the tests. */
        alarm(60);
        work(of);
        exit(3);
    }
    CHECK(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void do_nothing(struct handles *of)
{
    (void)of;
}

static void close_and_free(struct handles *of)
{
    CHECK(ubtrfs_volume_close(of->volume) == -EBUSY);
    free_all(of);
}

static void free_and_close(struct handles *of)
{
    free_all(of);
    CHECK(ubtrfs_volume_close(of->volume) == -EBUSY);
}

static int not_called(void *data)
{
    (void)data;
    return 1;
}

static int no_subvolume(const struct ubtrfs_subvolume_info *info, void *data)
{
    (void)info;
    return not_called(data);
}

static void call(struct handles *of)
{
    struct ubtrfs_subvolume *subvolume;
    struct ubtrfs_file *file;
    struct ubtrfs_stat stat;
    struct ubtrfs_dir *dir;
    char byte;

    CHECK(ubtrfs_pwrite(of->file, "child", 5, 0) == -EBUSY);
    CHECK(strstr(ubtrfs_error_message(), "fork"));
    CHECK(ubtrfs_pread(of->file, &byte, 1, 0) == -EBUSY);
    CHECK(ubtrfs_fsync(of->file) == -EBUSY && ubtrfs_truncate(of->file, 0) == -EBUSY);
    CHECK(ubtrfs_fstat(of->file, &stat) == -EBUSY && ubtrfs_stat(of->root, "/file", &stat) == -EBUSY);
    CHECK(ubtrfs_open(of->root, "/file", O_RDONLY, 0, &file) == -EBUSY);
    CHECK(ubtrfs_opendir(of->root, "/", &dir) == -EBUSY);
    CHECK(ubtrfs_mkdir(of->root, "/child", 0755) == -EBUSY && ubtrfs_unlink(of->root, "/file") == -EBUSY);
    CHECK(ubtrfs_subvolume_open(of->root, "/kept", &subvolume) == -EBUSY);
    CHECK(ubtrfs_subvolume_snapshot(of->root, "/", "/child", 0, NULL) == -EBUSY);
    CHECK(ubtrfs_volume_subvolumes(of->volume, no_subvolume, NULL) == -EBUSY);
    CHECK(ubtrfs_volume_group(of->volume, not_called, NULL) == -EBUSY);
    CHECK(ubtrfs_volume_set_label(of->volume, "child") == -EBUSY);
    CHECK(ubtrfs_volume_trim(of->volume, 0, UINT64_MAX, 0, NULL, NULL) == -EBUSY && ubtrfs_volume_sync(of->volume) == -EBUSY);
    close_and_free(of);
}

static atomic_bool ended;

/* Writes a file again and again, so that a fork finds locks of the library locked. */
static void *write_on(void *data)
{
    struct handles *of = data;
    struct ubtrfs_file *file;

    while (!atomic_load(&ended)) {
        CHECK(ubtrfs_open(of->root, "/other", O_WRONLY | O_CREAT | O_TRUNC, 0644, &file) == 0);
        CHECK(ubtrfs_pwrite(file, "content", 7, 0) == 7 && ubtrfs_fsync(file) == 0);
        ubtrfs_close(file);
        CHECK(ubtrfs_volume_sync(of->volume) == 0);
    }
    return NULL;
}

static void fork_beside_writers(struct handles *of)
{
    pthread_t threads[2];

    for (int thread = 0; thread < 2; ++thread)
        CHECK(pthread_create(&threads[thread], NULL, write_on, of) == 0);
    for (int round = 0; round < 20; ++round)
        CHECK(in_fork(round % 2 ? call : free_and_close, of) == 3);
    atomic_store(&ended, true);
    for (int thread = 0; thread < 2; ++thread)
        CHECK(pthread_join(threads[thread], NULL) == 0);
}

/* The handles outlive the volume: they read, and change nothing. */
static void use_after_close(struct handles *of)
{
    struct ubtrfs_file *file;
    struct ubtrfs_stat stat;
    char data[6];

    CHECK(ubtrfs_volume_close(of->volume) == 0);
    CHECK(ubtrfs_pwrite(of->file, "late", 4, 0) == -EROFS);
    CHECK(strstr(ubtrfs_error_message(), "the volume is closed"));
    CHECK(ubtrfs_truncate(of->file, 0) == -EROFS && ubtrfs_fsync(of->file) == -EROFS);
    CHECK(ubtrfs_mkdir(of->root, "/late", 0755) == -EROFS && ubtrfs_unlink(of->root, "/file") == -EROFS);
    CHECK(ubtrfs_open(of->root, "/late", O_WRONLY | O_CREAT, 0644, &file) == -EROFS);
    CHECK(ubtrfs_copy_tree(of->root, "/file", of->root, "/late", NULL, NULL, NULL) == -EROFS);
    CHECK(strstr(ubtrfs_error_message(), "the volume is closed"));
    CHECK(ubtrfs_pread(of->file, data, 6, 0) == 6 && !memcmp(data, "before", 6));
    CHECK(ubtrfs_stat(of->root, "/file", &stat) == 0 && stat.size == 16);
    free_all(of);
}

int main(int argc, char **argv)
{
    struct handles of;
    struct ubtrfs_dirent entry;
    struct ubtrfs_file *file;

    CHECK(argc == 2 && ubtrfs_volume_create(argv[1], (uint64_t)256 << 20, "", &of.volume) == 0);
    CHECK(ubtrfs_volume_root(of.volume, &of.root) == 0);
    CHECK(ubtrfs_open(of.root, "/file", O_RDWR | O_CREAT, 0644, &of.file) == 0);
    CHECK(ubtrfs_subvolume_snapshot(of.root, "/", "/kept", UBTRFS_READ_ONLY, &of.snapshot) == 0);
    CHECK(ubtrfs_opendir(of.root, "/", &of.dir) == 0);
    CHECK(ubtrfs_pwrite(of.file, "before", 6, 0) == 6);
    CHECK(in_fork(do_nothing, &of) == 3 && in_fork(close_and_free, &of) == 3);
    CHECK(in_fork(free_and_close, &of) == 3 && in_fork(call, &of) == 3);
    fork_beside_writers(&of);
    CHECK(ubtrfs_pwrite(of.file, " and after", 10, 6) == 10);
    CHECK(ubtrfs_open(of.root, "/after", O_WRONLY | O_CREAT, 0644, &file) == 0);
    CHECK(ubtrfs_pwrite(file, "before and after", 16, 0) == 16);
    ubtrfs_close(file);
    CHECK(ubtrfs_readdir(of.dir, &entry) == 1 && !strcmp(entry.name, "file"));
    use_after_close(&of);
    return 0;
}
