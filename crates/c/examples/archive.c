/* Keeps files in a volume, with a snapshot of each run.
 *
 *   archive IMAGE FILE...
 *
 * The image is created if it does not exist. Files are stored in /current, without their folders. Then the versions are
 * listed. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ubtrfs.h>

#define CAPACITY_BYTES ((uint64_t)1 << 30)

/* Ends the program if a call failed. */
static int64_t check(int64_t result)
{
    if (result < 0) {
        fprintf(stderr, "archive: %s (%s)\n", ubtrfs_error_message(), strerror((int)-result));
        exit(1);
    }
    return result;
}

static struct ubtrfs_volume *open_or_create(const char *image)
{
    struct ubtrfs_volume *volume;
    int result = ubtrfs_volume_open(image, 0, &volume);
    if (result == -ENOENT)
        result = ubtrfs_volume_create(image, CAPACITY_BYTES, "archive", &volume);
    check(result);
    return volume;
}

static struct ubtrfs_subvolume *open_or_create_current(const struct ubtrfs_subvolume *root)
{
    struct ubtrfs_subvolume *current;
    int result = ubtrfs_subvolume_open(root, "/current", &current);
    if (result == -ENOENT)
        result = ubtrfs_subvolume_create(root, "/current", &current);
    check(result);
    return current;
}

static void store(const struct ubtrfs_subvolume *current, const char *path)
{
    static char buffer[1 << 16];
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    struct ubtrfs_file *file;
    uint64_t offset = 0;
    size_t size;

    FILE *from = fopen(path, "rb");
    if (!from) {
        perror(path);
        exit(1);
    }
    check(ubtrfs_open(current, name, O_WRONLY | O_CREAT | O_TRUNC, 0644, &file));
    while ((size = fread(buffer, 1, sizeof buffer, from)) > 0)
        offset += (uint64_t)check(ubtrfs_pwrite(file, buffer, size, offset));
    if (ferror(from)) {
        perror(path);
        exit(1);
    }
    ubtrfs_close(file);
    fclose(from);
    check(ubtrfs_setxattr(current, name, "user.origin", path, strlen(path), 0));
}

static int count(const struct ubtrfs_subvolume_info *info, void *data)
{
    if (info->is_read_only && !info->is_deleted)
        ++*(unsigned *)data;
    return 0;
}

static void list(const struct ubtrfs_subvolume *version, const char *title)
{
    struct ubtrfs_dir *dir;
    struct ubtrfs_dirent entry;

    check(ubtrfs_opendir(version, "/", &dir));
    while (check(ubtrfs_readdir(dir, &entry)) > 0) {
        struct ubtrfs_stat stat;
        check(ubtrfs_lstat(version, entry.name, &stat));
        printf("%s/%s: %llu bytes\n", title, entry.name, (unsigned long long)stat.size);
    }
    ubtrfs_closedir(dir);
}

int main(int argc, char **argv)
{
    struct ubtrfs_volume *volume;
    struct ubtrfs_subvolume *root, *current, *version;
    unsigned versions = 0;
    char name[32];
    int at;

    if (argc < 2) {
        fprintf(stderr, "usage: archive IMAGE FILE...\n");
        return 2;
    }
    volume = open_or_create(argv[1]);
    check(ubtrfs_volume_root(volume, &root));
    current = open_or_create_current(root);
    for (at = 2; at < argc; at++)
        store(current, argv[at]);
    check(ubtrfs_volume_subvolumes(volume, count, &versions));
    snprintf(name, sizeof name, "/version-%u", versions + 1);
    check(ubtrfs_subvolume_snapshot(root, "/current", name, UBTRFS_READ_ONLY, &version));
    list(version, name);
    ubtrfs_subvolume_free(version);
    ubtrfs_subvolume_free(current);
    ubtrfs_subvolume_free(root);
    check(ubtrfs_volume_close(volume));
    return 0;
}
