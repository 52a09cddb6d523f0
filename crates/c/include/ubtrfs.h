/* ubtrfs: btrfs in user space, as a library for C.
 *
 * Made of crates/c/src by `cargo xtask header`. Link with `pkg-config --cflags --libs ubtrfs`.
 *
 * What holds for all functions:
 *
 * - A function that returns int returns 0, or a negative errno such as -ENOENT. One that returns int64_t returns a size, or a
 *   negative errno. ubtrfs_error_message() tells more.
 * - Results go to the last pointer. After a failure, a place for a handle holds NULL.
 * - Text and paths end with a NUL and are bytes of any encoding. A path begins at the root of the subvolume, with or without
 *   a slash.
 * - A pointer is of a living object of its type, and a buffer has as many bytes as are said. A handle or a text that is NULL
 *   is -EINVAL where nothing else is said. A buffer of no bytes may be NULL.
 * - Functions that copy a value copy all of it. If it is longer than the buffer, they return -ERANGE; for a buffer of no bytes,
 *   the size.
 * - Handles may be used by several threads at a time, except a struct ubtrfs_dir. The thread that closes or frees one has it
 *   alone.
 * - Nothing is kept of what a pointer of the caller leads to when a function returns.
 * - No permission is checked, and no umask applies. New files belong to user and group 0.
 * - A fault of the library is -ENOTRECOVERABLE, and no abort.
 *
 * Changes are in memory until ubtrfs_volume_sync, ubtrfs_volume_close, or 30 seconds have passed. After a power cut the volume
 * is as of a commit.
 *
 * A process that forks uses a volume on one side only.
 */

#ifndef UBTRFS_H
#define UBTRFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Opens for reading: others may do the same meanwhile.
 */
#define UBTRFS_READ_ONLY 1

/**
 * A rename replaces nothing.
 */
#define UBTRFS_RENAME_NOREPLACE 1

/**
 * A rename exchanges two names.
 */
#define UBTRFS_RENAME_EXCHANGE 2

/**
 * A link at the end of the path is not followed.
 */
#define UBTRFS_NOFOLLOW 1

/**
 * The attribute must not exist.
 */
#define UBTRFS_XATTR_CREATE 2

/**
 * The attribute must exist.
 */
#define UBTRFS_XATTR_REPLACE 4

/**
 * A directory that is listed.
 */
struct ubtrfs_dir;

/**
 * An open file.
 */
struct ubtrfs_file;

/**
 * A subvolume: a tree of files. Paths begin at its root.
 */
struct ubtrfs_subvolume;

/**
 * An open volume.
 */
struct ubtrfs_volume;

/**
 * A time: seconds since 1970 in UTC, and nanoseconds.
 */
struct ubtrfs_timespec {
  int64_t sec;
  uint32_t nsec;
};

/**
 * Properties of a subvolume.
 */
struct ubtrfs_subvolume_info {
  /**
   * The number within the volume. The top level has 5.
   */
  uint64_t id;
  /**
   * The path from the top level, without a slash before it; empty for the top level. NULL while it is being deleted.
   */
  const char *path;
  uint8_t uuid[16];
  /**
   * The UUID of the subvolume that it is a snapshot of, else zeros.
   */
  uint8_t parent_uuid[16];
  /**
   * The UUID of the subvolume that was sent, if this one was received, else zeros.
   */
  uint8_t received_uuid[16];
  /**
   * The transaction that changed it last.
   */
  uint64_t generation;
  /**
   * The transaction that made it.
   */
  uint64_t created_generation;
  struct ubtrfs_timespec created;
  /**
   * When a file of it was changed last.
   */
  struct ubtrfs_timespec changed;
  bool is_read_only;
  /**
   * It is deleted, and its space not all free yet.
   */
  bool is_deleted;
};

/**
 * Takes a subvolume of a list; `data` is the caller's. What `info` points to is gone afterwards. Another result than 0
 * ends the list.
 */
typedef int (*ubtrfs_subvolume_callback)(const struct ubtrfs_subvolume_info *info, void *data);

/**
 * Attributes of a file.
 */
struct ubtrfs_stat {
  /**
   * The subvolume that holds the file. With `ino` it tells the file from all others.
   */
  uint64_t subvolume_id;
  uint64_t ino;
  uint64_t size;
  /**
   * The space that the content takes, in units of 512 bytes.
   */
  uint64_t blocks;
  uint64_t nlink;
  /**
   * The device that a device file stands for.
   */
  uint64_t rdev;
  /**
   * Kind and permissions: S_ISDIR(mode) and the like of sys/stat.h.
   */
  uint32_t mode;
  uint32_t uid;
  uint32_t gid;
  struct ubtrfs_timespec atime;
  struct ubtrfs_timespec mtime;
  struct ubtrfs_timespec ctime;
  /**
   * When the file was made.
   */
  struct ubtrfs_timespec btime;
};

/**
 * An entry of a directory.
 */
struct ubtrfs_dirent {
  /**
   * Valid until the next entry is read, or the directory closed.
   */
  const char *name;
  uint64_t ino;
  /**
   * The kind alone: S_ISDIR(mode) and the like of sys/stat.h.
   */
  uint32_t mode;
  /**
   * It is the root of a subvolume.
   */
  bool is_subvolume;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Tells in English why the last call of this thread that failed did so, with its paths. Empty if none has. The text is
 * valid until the next call of this thread fails.
 */
const char *ubtrfs_error_message(void);

/**
 * The version of the library, such as "0.1.0".
 */
const char *ubtrfs_version(void);

/**
 * Makes a volume in a file that must not exist, and opens it for writing. The file is sparse. The label may be NULL: it
 * has none.
 */
int ubtrfs_volume_create(const char *image,
                         uint64_t size_bytes,
                         const char *label,
                         struct ubtrfs_volume **volume);

/**
 * Opens the volume in a file or on a device. For writing it is opened alone; UBTRFS_READ_ONLY is the only flag.
 */
int ubtrfs_volume_open(const char *image,
                       unsigned int flags,
                       struct ubtrfs_volume **volume);

/**
 * Commits everything and closes the volume. An error tells that the last changes are not durable; the handle is gone all
 * the same. NULL is no error.
 *
 * Handles of its subvolumes, files and directories are still to be freed. They change nothing any more, and the file of the
 * volume is in use until the last of them is freed.
 */
int ubtrfs_volume_close(struct ubtrfs_volume *volume);

/**
 * Writes all buffered data and commits everything done before. Returns when it is durable.
 */
int ubtrfs_volume_sync(const struct ubtrfs_volume *volume);

/**
 * Copies the UUID of the volume.
 */
int ubtrfs_volume_uuid(const struct ubtrfs_volume *volume, uint8_t (*uuid)[16]);

/**
 * Copies the label as of the last commit, without a NUL, and returns its size.
 */
int64_t ubtrfs_volume_label(const struct ubtrfs_volume *volume, void *buf, size_t buf_size);

/**
 * Gives the volume another label, of at most 255 bytes.
 */
int ubtrfs_volume_set_label(const struct ubtrfs_volume *volume, const char *label);

/**
 * Lists all subvolumes by ascending id, the top level first. Deleted ones are among them until their space is free. If
 * the callback ends the list, its result is returned.
 */
int ubtrfs_volume_subvolumes(const struct ubtrfs_volume *volume,
                             ubtrfs_subvolume_callback callback,
                             void *data);

/**
 * Gives a handle of the top level, the subvolume that holds all others.
 */
int ubtrfs_volume_root(const struct ubtrfs_volume *volume, struct ubtrfs_subvolume **root);

/**
 * Opens the subvolume that a path leads to.
 */
int ubtrfs_subvolume_open(const struct ubtrfs_subvolume *dir,
                          const char *at,
                          struct ubtrfs_subvolume **subvolume);

/**
 * Frees a handle. NULL is no error.
 */
void ubtrfs_subvolume_free(struct ubtrfs_subvolume *subvolume);

/**
 * The id of the subvolume within its volume; 0 for NULL.
 */
uint64_t ubtrfs_subvolume_id(const struct ubtrfs_subvolume *subvolume);

/**
 * Makes an empty subvolume, and commits. `made` may be NULL: no handle is wanted.
 */
int ubtrfs_subvolume_create(const struct ubtrfs_subvolume *dir,
                            const char *at,
                            struct ubtrfs_subvolume **made);

/**
 * Makes `to` a snapshot of the subvolume at `of`, and commits. "/" is the subvolume itself. The flag UBTRFS_READ_ONLY makes
 * it read-only. `made` may be NULL: no handle is wanted.
 */
int ubtrfs_subvolume_snapshot(const struct ubtrfs_subvolume *dir,
                              const char *of,
                              const char *to,
                              unsigned int flags,
                              struct ubtrfs_subvolume **made);

/**
 * Deletes a subvolume with all that is in it. Subvolumes nested in it are an error. Its space comes back in the background.
 */
int ubtrfs_subvolume_delete(const struct ubtrfs_subvolume *dir,
                            const char *at);

/**
 * Makes the subvolume read-only, or writable.
 */
int ubtrfs_subvolume_set_read_only(const struct ubtrfs_subvolume *subvolume, bool read_only);

/**
 * Makes a directory with the permissions of `mode`.
 */
int ubtrfs_mkdir(const struct ubtrfs_subvolume *subvolume, const char *at, uint32_t mode);

/**
 * Makes a directory and those above it as far as they are missing, with the permissions 0755.
 */
int ubtrfs_mkdir_all(const struct ubtrfs_subvolume *subvolume, const char *at);

/**
 * Makes a FIFO, a socket or a device; `mode` has the bits of the kind and the permissions.
 */
int ubtrfs_mknod(const struct ubtrfs_subvolume *subvolume,
                 const char *at,
                 uint32_t mode,
                 uint64_t rdev);

/**
 * Removes the name of a file that is no directory; of a link itself.
 */
int ubtrfs_unlink(const struct ubtrfs_subvolume *subvolume, const char *at);

/**
 * Removes an empty directory. An empty subvolume is deleted with it.
 */
int ubtrfs_rmdir(const struct ubtrfs_subvolume *subvolume, const char *at);

/**
 * Removes a directory with all that is in it; a link itself. If a subvolume is below, nothing is removed.
 */
int ubtrfs_remove_all(const struct ubtrfs_subvolume *subvolume,
                      const char *at);

/**
 * Moves, and replaces a file of the new name. `flags` is 0, UBTRFS_RENAME_NOREPLACE or UBTRFS_RENAME_EXCHANGE.
 */
int ubtrfs_rename(const struct ubtrfs_subvolume *subvolume,
                  const char *from,
                  const char *to,
                  unsigned int flags);

/**
 * Makes a symbolic link to `target`.
 */
int ubtrfs_symlink(const struct ubtrfs_subvolume *subvolume, const char *target, const char *link);

/**
 * Copies the target of a symbolic link, without a NUL, and returns its size.
 */
int64_t ubtrfs_readlink(const struct ubtrfs_subvolume *subvolume,
                        const char *at,
                        void *buf,
                        size_t buf_size);

/**
 * Gives a file a further name.
 */
int ubtrfs_link(const struct ubtrfs_subvolume *subvolume, const char *original, const char *link);

/**
 * Has `to` share the content of `from`, as `cp --reflink` does: no data is copied.
 */
int ubtrfs_reflink(const struct ubtrfs_subvolume *subvolume, const char *from, const char *to);

/**
 * Reads the attributes of a file. Links are followed.
 */
int ubtrfs_stat(const struct ubtrfs_subvolume *subvolume, const char *at, struct ubtrfs_stat *stat);

/**
 * Reads the attributes of a file; of a link itself.
 */
int ubtrfs_lstat(const struct ubtrfs_subvolume *subvolume,
                 const char *at,
                 struct ubtrfs_stat *stat);

/**
 * Sets the permission bits. Links are followed.
 */
int ubtrfs_chmod(const struct ubtrfs_subvolume *subvolume, const char *at, uint32_t mode);

/**
 * Sets user and group. UINT32_MAX leaves one as it is. `flags` is 0 or UBTRFS_NOFOLLOW.
 */
int ubtrfs_chown(const struct ubtrfs_subvolume *subvolume,
                 const char *at,
                 uint32_t uid,
                 uint32_t gid,
                 unsigned int flags);

/**
 * Sets times. A time that is NULL stays. `flags` is 0 or UBTRFS_NOFOLLOW.
 */
int ubtrfs_utimens(const struct ubtrfs_subvolume *subvolume,
                   const char *at,
                   const struct ubtrfs_timespec *atime,
                   const struct ubtrfs_timespec *mtime,
                   unsigned int flags);

/**
 * Copies the value of an extended attribute, such as "user.note", and returns its size. `flags` is 0 or UBTRFS_NOFOLLOW.
 * Without such an attribute the error is -ENODATA.
 */
int64_t ubtrfs_getxattr(const struct ubtrfs_subvolume *subvolume,
                        const char *at,
                        const char *name,
                        void *buf,
                        size_t buf_size,
                        unsigned int flags);

/**
 * Copies the names of all extended attributes, each with a NUL, and returns their size. `flags` is 0 or UBTRFS_NOFOLLOW.
 */
int64_t ubtrfs_listxattr(const struct ubtrfs_subvolume *subvolume,
                         const char *at,
                         void *buf,
                         size_t buf_size,
                         unsigned int flags);

/**
 * Sets an extended attribute. `flags` is 0, UBTRFS_NOFOLLOW, UBTRFS_XATTR_CREATE or UBTRFS_XATTR_REPLACE.
 */
int ubtrfs_setxattr(const struct ubtrfs_subvolume *subvolume,
                    const char *at,
                    const char *name,
                    const void *value,
                    size_t value_size,
                    unsigned int flags);

/**
 * Removes an extended attribute. `flags` is 0 or UBTRFS_NOFOLLOW.
 */
int ubtrfs_removexattr(const struct ubtrfs_subvolume *subvolume,
                       const char *at,
                       const char *name,
                       unsigned int flags);

/**
 * Opens a directory to list it.
 */
int ubtrfs_opendir(const struct ubtrfs_subvolume *subvolume,
                   const char *at,
                   struct ubtrfs_dir **dir);

/**
 * Reads the next entry: 1 if there is one, 0 at the end. "." and ".." are not among them.
 */
int ubtrfs_readdir(struct ubtrfs_dir *dir, struct ubtrfs_dirent *entry);

/**
 * Frees a directory. NULL is no error.
 */
void ubtrfs_closedir(struct ubtrfs_dir *dir);

/**
 * Opens a file, with the flags of open(2): O_RDONLY, O_WRONLY or O_RDWR, and of O_APPEND, O_CREAT, O_EXCL, O_NOFOLLOW and
 * O_TRUNC. The last but O_NOFOLLOW need writing, and O_TRUNC excludes O_APPEND. A new file gets the permissions of `mode`.
 */
int ubtrfs_open(const struct ubtrfs_subvolume *subvolume,
                const char *at,
                int flags,
                uint32_t mode,
                struct ubtrfs_file **file);

/**
 * Frees an open file. Written data stays in the volume, which commits it. NULL is no error.
 */
void ubtrfs_close(struct ubtrfs_file *file);

/**
 * Reads from an offset. Returns how many bytes there were: fewer than asked for only at the end of the file.
 */
int64_t ubtrfs_pread(const struct ubtrfs_file *file,
                     void *buf,
                     size_t buf_size,
                     uint64_t offset);

/**
 * Writes all bytes at an offset; at the end, if the file was opened with O_APPEND. Returns how many.
 */
int64_t ubtrfs_pwrite(const struct ubtrfs_file *file,
                      const void *data,
                      size_t data_size,
                      uint64_t offset);

/**
 * Cuts the file or lengthens it by zeros.
 */
int ubtrfs_truncate(const struct ubtrfs_file *file, uint64_t size_bytes);

/**
 * Makes the file durable, content and attributes, with its name if it is new.
 */
int ubtrfs_fsync(const struct ubtrfs_file *file);

/**
 * Makes the content durable, and of the attributes those that reading it needs.
 */
int ubtrfs_fdatasync(const struct ubtrfs_file *file);

/**
 * Reads the attributes of an open file.
 */
int ubtrfs_fstat(const struct ubtrfs_file *file, struct ubtrfs_stat *stat);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* UBTRFS_H */
