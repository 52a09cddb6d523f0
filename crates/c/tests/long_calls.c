/* Runs all calls with progress callbacks, and cancels each call once. Formats existing images.
 *
 *   long_calls FOLDER
 *
 * The folder has a tree at "tree" and an empty image at "two.img". The program creates all other files. */

#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <ubtrfs.h>
#include <unistd.h>

#define IMAGE_BYTES ((uint64_t)512 << 20)

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, ubtrfs_error_message()); \
            exit(1); \
        } \
    } while (0)

/* The record of a callback, which cancels at call number `end_at`, unless that is 0. */
struct heard {
    unsigned calls, end_at;
    uint64_t files, bytes, blocks;
    int phase, phases;
    unsigned problems, names;
    bool has_path, has_subject;
};

static int hear(const struct ubtrfs_progress *progress, void *data)
{
    struct heard *heard = data;

    CHECK(progress->files >= heard->files && progress->bytes >= heard->bytes);
    heard->files = progress->files;
    heard->bytes = progress->bytes;
    heard->blocks = progress->blocks;
    heard->phase = progress->phase;
    heard->phases = progress->phases;
    heard->has_path = heard->has_path || progress->path;
    heard->has_subject = heard->has_subject || progress->subject;
    CHECK(!progress->message == (progress->event != UBTRFS_EVENT_PROBLEM));
    switch (progress->event) {
    case UBTRFS_EVENT_BEGIN:
    case UBTRFS_EVENT_REMOVED:
        CHECK(progress->path);
        break;
    case UBTRFS_EVENT_PROBLEM:
        CHECK(strstr(progress->path, "tree/file") || !strncmp(progress->path, "/doomed", 7));
        CHECK(progress->message[0]);
        heard->problems++;
        break;
    case UBTRFS_EVENT_FINISHED:
        CHECK(!strcmp(progress->path, "sent"));
        heard->names++;
        break;
    default:
        CHECK(progress->event == UBTRFS_EVENT_ADVANCE || progress->event == UBTRFS_EVENT_PHASE);
    }
    return ++heard->calls == heard->end_at;
}

/* Resets the record. */
static void listen(struct heard *heard, unsigned end_at)
{
    memset(heard, 0, sizeof *heard);
    heard->end_at = end_at;
}

/* Calls twice. The first progress report cancels the first call. */
#define TWICE(heard, call, done) \
    do { \
        listen(&heard, 1); \
        CHECK((call) == -EINTR && heard.calls == 1); \
        CHECK(strstr(ubtrfs_error_message(), "cancelled")); \
        listen(&heard, 0); \
        CHECK((call) == (done) && heard.calls > 1); \
    } while (0)

static int opened(const char *name, int flags)
{
    int fd = open(name, flags, 0644);
    CHECK(fd >= 0);
    return fd;
}

/* Opens the file again for each call. */
static int64_t export_anew(const struct ubtrfs_subvolume *root, struct heard *heard)
{
    int fd = opened("tree.tar", O_WRONLY | O_CREAT | O_TRUNC);
    int64_t result = ubtrfs_export_tar(root, "/tree", fd, heard ? hear : NULL, heard);
    close(fd);
    return result;
}

static int64_t import_anew(const struct ubtrfs_subvolume *root, const struct ubtrfs_transfer_options *options,
                           struct heard *heard)
{
    int fd = opened("tree.tar", O_RDONLY);
    int64_t result = ubtrfs_import_tar(root, fd, "/unpacked", options, hear, heard);
    close(fd);
    return result;
}

static int send_anew(const struct ubtrfs_subvolume *sent, const struct ubtrfs_send_options *options)
{
    int fd = opened("stream", O_WRONLY | O_CREAT | O_TRUNC);
    int result = ubtrfs_send(sent, options, fd);
    close(fd);
    return result;
}

static int receive_anew(const struct ubtrfs_subvolume *root, const char *dir,
                        const struct ubtrfs_receive_options *options, struct heard *heard)
{
    int fd = opened("stream", O_RDONLY);
    int result = ubtrfs_receive(root, dir, fd, options, hear, heard);
    close(fd);
    return result;
}

static void transfer(const struct ubtrfs_subvolume *root, const struct ubtrfs_subvolume *other)
{
    struct ubtrfs_transfer_options *options;
    struct heard heard;

    CHECK(ubtrfs_transfer_options_new(&options) == 0);
    TWICE(heard, ubtrfs_copy_from_host(root, "tree", "/tree", options, hear, &heard), 0);
    CHECK(heard.has_path && heard.files == 3 && heard.bytes >= 3 << 20);
    TWICE(heard, ubtrfs_copy_tree(root, "/tree", root, "/shared", options, hear, &heard), 0);
    CHECK(heard.files == 3);
    TWICE(heard, ubtrfs_copy_tree(root, "/tree", other, "/tree", options, hear, &heard), 0);
    CHECK(heard.files == 3 && heard.bytes >= 3 << 20);
    TWICE(heard, ubtrfs_copy_to_host(root, "/tree", "back", options, hear, &heard), 0);
    CHECK(heard.bytes >= 3 << 20 && access("back/file", R_OK) == 0);
    TWICE(heard, export_anew(root, &heard), 0);
    CHECK(heard.bytes >= 3 << 20);
    CHECK(ubtrfs_mkdir(root, "/unpacked", 0755) == 0);
    TWICE(heard, import_anew(root, options, &heard), 0);
    CHECK(heard.bytes >= 3 << 20);

    listen(&heard, 0);
    CHECK(unlink("back/file") == 0 && mkdir("back/file", 0755) == 0);
    CHECK(ubtrfs_copy_to_host(root, "/tree", "back", options, hear, &heard) == 1);
    CHECK(heard.problems == 1);
    listen(&heard, 0);
    CHECK(ubtrfs_copy_to_host(root, "/tree", "back", NULL, hear, &heard) == 1 && heard.problems == 1);
    CHECK(ubtrfs_copy_to_host(root, "/tree", "back", NULL, NULL, NULL) == 1);

    CHECK(ubtrfs_transfer_options_set(options, "reflink", "sometimes") == -EINVAL);
    CHECK(ubtrfs_transfer_options_set(options, "reflink", "never") == 0);
    CHECK(ubtrfs_transfer_options_set(options, "sparse", "maybe") == -EINVAL);
    CHECK(ubtrfs_transfer_options_set(options, "sparse", "always") == 0);
    CHECK(ubtrfs_transfer_options_set(options, "follow", "true") == 0);
    CHECK(ubtrfs_transfer_options_set(options, "contents", "true") == 0);
    CHECK(ubtrfs_transfer_options_set(options, "preserve", "false") == 0);
    CHECK(ubtrfs_transfer_options_set(options, "strict_attributes", "true") == 0);
    CHECK(ubtrfs_transfer_options_set(options, "umask", "077") == 0);
    CHECK(ubtrfs_mkdir(root, "/into", 0755) == 0);
    CHECK(ubtrfs_symlink(root, "/tree", "/link") == 0);
    listen(&heard, 0);
    CHECK(ubtrfs_copy_tree(root, "/link", root, "/into", options, hear, &heard) == 0);
    CHECK(heard.bytes >= 3 << 20);
    {
        struct ubtrfs_stat stat;
        CHECK(ubtrfs_stat(root, "/into/file", &stat) == 0 && (stat.mode & 0777) == 0600);
    }
    CHECK(export_anew(root, NULL) == 0);
    ubtrfs_transfer_options_free(options);
}

static void remove_tree(const struct ubtrfs_subvolume *root)
{
    struct ubtrfs_transfer_options *options;
    struct ubtrfs_stat stat;
    struct heard heard;

    CHECK(ubtrfs_mkdir_all(root, "/doomed/dir/below") == 0);
    CHECK(ubtrfs_subvolume_create(root, "/doomed/sub", NULL) == 0);
    CHECK(ubtrfs_transfer_options_new(&options) == 0);
    TWICE(heard, ubtrfs_remove_tree(root, "/doomed", options, hear, &heard), 2);
    CHECK(heard.problems == 2 && heard.files == 1 && heard.has_path);
    CHECK(ubtrfs_transfer_options_set(options, "enter_subvolumes", "true") == 0);
    listen(&heard, 0);
    CHECK(ubtrfs_remove_tree(root, "/doomed", options, hear, &heard) == 0 && heard.files == 2);
    CHECK(ubtrfs_stat(root, "/doomed", &stat) == -ENOENT);
    CHECK(ubtrfs_remove_tree(root, "/doomed", NULL, NULL, NULL) == -ENOENT);
    ubtrfs_transfer_options_free(options);
}

static void stream(const struct ubtrfs_subvolume *root, const struct ubtrfs_subvolume *other)
{
    struct ubtrfs_send_options sending = {0};
    struct ubtrfs_receive_options *receiving;
    struct ubtrfs_subvolume *sent;
    struct heard heard;

    CHECK(ubtrfs_subvolume_snapshot(root, "/", "/sent", UBTRFS_READ_ONLY, &sent) == 0);
    sending.progress = hear;
    sending.progress_data = &heard;
    TWICE(heard, send_anew(sent, &sending), 0);
    CHECK(heard.bytes >= 3 << 20);
    CHECK(ubtrfs_receive_options_new(&receiving) == 0);
    CHECK(ubtrfs_receive_options_set(receiving, "all_streams", "true") == 0);
    CHECK(ubtrfs_receive_options_set(receiving, "force_decompress", "true") == 0);
    CHECK(ubtrfs_receive_options_set(receiving, "strict_attributes", "true") == 0);
    CHECK(ubtrfs_mkdir(other, "/received", 0755) == 0);
    TWICE(heard, receive_anew(other, "/received", receiving, &heard), 0);
    CHECK(heard.names == 1 && heard.has_path && heard.bytes >= 3 << 20);
    ubtrfs_receive_options_free(receiving);
    CHECK(ubtrfs_mkdir(other, "/again", 0755) == 0);
    listen(&heard, 0);
    CHECK(receive_anew(other, "/again", NULL, &heard) == 0 && heard.names == 1);
    ubtrfs_subvolume_free(sent);
}

static int count_device(const struct ubtrfs_device_errors *errors, void *data)
{
    unsigned *devices = data;
    CHECK(errors->id == ++*devices);
    CHECK(errors->write_errors + errors->read_errors + errors->flush_errors == 0);
    CHECK(errors->corruption_errors + errors->generation_errors == 0);
    return errors->id == 2 ? 7 : 0;
}

/* Formats two images, one with an existing volume, and returns the new volume. */
static struct ubtrfs_volume *format(void)
{
    const char *const paths[] = {"one.img", "two.img"};
    struct ubtrfs_mkfs_options *mkfs;
    struct ubtrfs_volume *volume;

    CHECK(ubtrfs_volume_create("one.img", IMAGE_BYTES, NULL, &volume) == 0);
    CHECK(ubtrfs_volume_close(volume) == 0);
    CHECK(ubtrfs_mkfs_options_new(&mkfs) == 0);
    CHECK(ubtrfs_mkfs_options_set(mkfs, "label", "formatted") == 0);
    CHECK(ubtrfs_mkfs_options_set(mkfs, "discard_before", "true") == 0);
    CHECK(ubtrfs_mkfs_options_set(mkfs, "root_owner", "1000:1001") == 0);
    CHECK(ubtrfs_volume_format(paths, 2, mkfs, NULL, &volume) == -EEXIST && !volume);
    CHECK(strstr(ubtrfs_error_message(), "'one.img' appears to contain an existing filesystem (btrfs)"));
    CHECK(ubtrfs_volume_open("one.img", UBTRFS_READ_ONLY, &volume) == 0);
    CHECK(ubtrfs_volume_close(volume) == 0);
    CHECK(ubtrfs_mkfs_options_set(mkfs, "force", "true") == 0);
    CHECK(ubtrfs_volume_format(paths, 2, mkfs, NULL, &volume) == 0);
    ubtrfs_mkfs_options_free(mkfs);
    return volume;
}

/* Formats an image with contents. */
static struct ubtrfs_volume *format_filled(void)
{
    const char *const path = "three.img";
    struct ubtrfs_mkfs_options *mkfs;
    struct ubtrfs_volume *volume;
    struct ubtrfs_subvolume *root, *dir;
    struct heard heard;
    int fd = opened(path, O_WRONLY | O_CREAT);

    CHECK(ftruncate(fd, (off_t)IMAGE_BYTES) == 0 && close(fd) == 0);
    CHECK(ubtrfs_mkfs_options_new(&mkfs) == 0);
    CHECK(ubtrfs_mkfs_options_set(mkfs, "rootdir", "tree") == 0);
    CHECK(ubtrfs_mkfs_options_set(mkfs, "shrink", "true") == 0);
    CHECK(ubtrfs_mkfs_options_set(mkfs, "read_only_subvolumes", NULL) == -EINVAL);
    CHECK(ubtrfs_mkfs_options_set(mkfs, "read_only_subvolumes", "dir") == 0);
    CHECK(ubtrfs_mkfs_options_set_progress(mkfs, hear, &heard) == 0);
    TWICE(heard, ubtrfs_volume_format(&path, 1, mkfs, NULL, &volume), 0);
    CHECK(heard.has_path && heard.files == 3 && heard.bytes >= 3 << 20);
    CHECK(ubtrfs_volume_root(volume, &root) == 0);
    CHECK(ubtrfs_subvolume_open(root, "/dir", &dir) == 0);
    CHECK(ubtrfs_subvolume_id(dir) > 255 && ubtrfs_mkdir(dir, "/new", 0755) == -EROFS);
    ubtrfs_subvolume_free(dir);
    ubtrfs_subvolume_free(root);
    ubtrfs_mkfs_options_free(mkfs);
    return volume;
}

int main(int argc, char **argv)
{
    const char *const paths[] = {"one.img", "two.img"};
    struct ubtrfs_check_options *checking;
    struct ubtrfs_check_report report;
    struct ubtrfs_volume *volume, *other;
    struct ubtrfs_subvolume *root, *other_root;
    struct ubtrfs_space space;
    struct ubtrfs_stat stat;
    struct heard heard;
    unsigned devices = 0;

    CHECK(argc == 2 && chdir(argv[1]) == 0);
    other = format_filled();
    CHECK(ubtrfs_volume_space(other, &space) == 0 && space.total_bytes < IMAGE_BYTES);
    CHECK(ubtrfs_volume_close(other) == 0);
    CHECK(ubtrfs_volume_create("four.img", IMAGE_BYTES, NULL, &other) == 0);
    volume = format();
    CHECK(ubtrfs_volume_root(volume, &root) == 0 && ubtrfs_volume_root(other, &other_root) == 0);
    CHECK(ubtrfs_stat(root, "/", &stat) == 0 && stat.uid == 1000 && stat.gid == 1001);
    CHECK(ubtrfs_volume_device_errors(volume, count_device, &devices) == 7 && devices == 2);
    CHECK(ubtrfs_volume_device_errors(volume, NULL, NULL) == -EINVAL);
    transfer(root, other_root);
    remove_tree(root);
    stream(root, other_root);

    listen(&heard, 1);
    CHECK(ubtrfs_volume_trim(volume, 0, UINT64_MAX, 4096, hear, &heard) == -EINTR);
    CHECK(heard.calls == 1);
    listen(&heard, 0);
    CHECK(ubtrfs_volume_trim(volume, 0, UINT64_MAX, 4096, hear, &heard) > 0);
    CHECK(heard.calls > 1 && heard.bytes > 0);
    CHECK(ubtrfs_volume_trim(volume, 0, 1, 0, NULL, NULL) == -EINVAL);

    ubtrfs_subvolume_free(other_root);
    ubtrfs_subvolume_free(root);
    CHECK(ubtrfs_volume_close(other) == 0 && ubtrfs_volume_close(volume) == 0);
    CHECK(ubtrfs_check_options_new(&checking) == 0);
    CHECK(ubtrfs_check_options_set_progress(checking, hear, &heard) == 0);
    TWICE(heard, ubtrfs_check_with(paths, 2, checking, NULL, NULL, &report), 0);
    CHECK(heard.has_subject && heard.phase == heard.phases && heard.blocks > 0 && report.errors == 0);
    ubtrfs_check_options_free(checking);
    return 0;
}
