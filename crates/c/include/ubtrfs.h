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
 * - Nothing is kept of what a pointer of the caller leads to when a function returns, but the `data` of a callback in options.
 * - A callback returns: no exception and no longjmp leaves it. It is called in the thread of the caller, and may call functions
 *   of the library but those that close or free what the call uses.
 * - The structures here never change, also in later releases, and have no member that is not shown. Those without members, such
 *   as struct ubtrfs_open_options, are handles, and what is added comes as functions.
 * - No permission is checked, and no umask applies. New files belong to user and group 0.
 * - A fault of the library is -ENOTRECOVERABLE, and no abort.
 *
 * Changes are in memory until ubtrfs_volume_sync, ubtrfs_volume_close, or 30 seconds have passed. After a power cut the volume
 * is as of a commit.
 *
 * A volume stays with the process that opened it. In a fork, calls on it
 * return -EBUSY, and freeing its handles changes nothing.
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
 * Block groups of data.
 */
#define UBTRFS_DATA 0

/**
 * Block groups of trees.
 */
#define UBTRFS_METADATA 1

/**
 * Block groups of the tree of chunks.
 */
#define UBTRFS_SYSTEM 2

/**
 * Block groups of data and trees.
 */
#define UBTRFS_MIXED 3

/**
 * A check also reads all data of every mirror, and compares it with its checksums.
 */
#define UBTRFS_CHECK_DATA 1

/**
 * Sound operation leaves it, such as a power cut.
 */
#define UBTRFS_NOTE 0

/**
 * The kernel lives with it.
 */
#define UBTRFS_WARNING 1

/**
 * The volume is not consistent.
 */
#define UBTRFS_ERROR 2

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
 * Sends compressed data as it is, in a stream of version 2.
 */
#define UBTRFS_SEND_COMPRESSED 1

/**
 * Says which ranges of files changed, and sends no data.
 */
#define UBTRFS_SEND_NO_DATA 2

/**
 * A name is gone.
 */
#define UBTRFS_REMOVED 0

/**
 * A name is new.
 */
#define UBTRFS_ADDED 1

/**
 * A name's file had another name before.
 */
#define UBTRFS_RENAMED 2

/**
 * A name is as it was, and its file is not.
 */
#define UBTRFS_CHANGED 3

/**
 * How a volume is checked. New ones are those of ubtrfs_check without flags.
 */
struct ubtrfs_check_options;

/**
 * A directory that is listed.
 */
struct ubtrfs_dir;

/**
 * An open file.
 */
struct ubtrfs_file;

/**
 * How a volume is made. New ones are those of ubtrfs_volume_create.
 */
struct ubtrfs_mkfs_options;

/**
 * How a volume is opened. New ones are those of ubtrfs_volume_open for writing.
 */
struct ubtrfs_open_options;

/**
 * How a stream is received. New ones are those of ubtrfs_receive.
 */
struct ubtrfs_receive_options;

/**
 * A subvolume: a tree of files. Paths begin at its root.
 */
struct ubtrfs_subvolume;

/**
 * How a tree is copied, archived or removed. New ones are those of ubtrfs_copy_tree and its like.
 */
struct ubtrfs_transfer_options;

/**
 * An open volume.
 */
struct ubtrfs_volume;

/**
 * How far a long call is. Counts are of the whole call, and 0 where they mean nothing to it.
 */
struct ubtrfs_progress {
  /**
   * The file that the call is at, as it names files in messages; of a stream that is received, the subvolume and the
   * path within. NULL if it is at none.
   */
  const char *path;
  /**
   * The subject of a check, for people, such as "extents"; else NULL.
   */
  const char *subject;
  /**
   * The number of the phase of a check, from 1.
   */
  int phase;
  /**
   * How many phases a check has.
   */
  int phases;
  /**
   * Files of a tree that were begun, filled in or removed, or commands of a stream that is received.
   */
  uint64_t files;
  /**
   * Bytes of file data that were copied, filled in or archived, of the stream that is sent or received, or of space that was
   * trimmed. Data that copies share is not among them.
   */
  uint64_t bytes;
  /**
   * Tree blocks that a check has read.
   */
  uint64_t blocks;
  /**
   * Issues that a check has found.
   */
  uint64_t issues;
};

/**
 * Hears how far a call is, at least before each file and with each part of its data; `data` is the caller's. The data
 * behind `progress` is gone afterwards. Another result than 0 ends the call, which returns -EINTR. The callback is not
 * called again, and what was done stays.
 */
typedef int (*ubtrfs_progress_callback)(const struct ubtrfs_progress *progress, void *data);

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
 * Takes a subvolume of a list; `data` is the caller's. The data behind `info` is gone afterwards. Another result than
 * 0 ends the list.
 */
typedef int (*ubtrfs_subvolume_callback)(const struct ubtrfs_subvolume_info *info, void *data);

/**
 * Does the work of a group; `data` is the caller's. Another result than 0 says that the work failed.
 */
typedef int (*ubtrfs_work_callback)(void *data);

/**
 * The space of a volume, in bytes, as the kernel's btrfs reports it for the same volume.
 */
struct ubtrfs_space {
  /**
   * The size as df shows it: that of the devices, divided by the copies that data has.
   */
  uint64_t total_bytes;
  /**
   * Bytes that are not in use, divided by the copies that data has.
   */
  uint64_t free_bytes;
  /**
   * Bytes that data can be written to.
   */
  uint64_t available_bytes;
  /**
   * Bytes held back so that files can be deleted on a full volume.
   */
  uint64_t reserve_bytes;
};

/**
 * The block groups of one kind and profile.
 */
struct ubtrfs_block_groups {
  /**
   * UBTRFS_DATA, UBTRFS_METADATA, UBTRFS_SYSTEM or UBTRFS_MIXED.
   */
  unsigned int kind;
  /**
   * The profile, such as "RAID1" or "single"; NULL if it is not known.
   */
  const char *profile;
  /**
   * The bytes of content that they have room for.
   */
  uint64_t total_bytes;
  /**
   * The bytes in use of that.
   */
  uint64_t used_bytes;
};

/**
 * Takes block groups of a list; `data` is the caller's. The data behind `groups` is gone afterwards. Another result
 * than 0 ends the list.
 */
typedef int (*ubtrfs_block_groups_callback)(const struct ubtrfs_block_groups *groups, void *data);

/**
 * A device of a volume.
 */
struct ubtrfs_device {
  /**
   * The number within the volume.
   */
  uint64_t id;
  uint8_t uuid[16];
  /**
   * Where it is; NULL if it is missing.
   */
  const char *path;
  /**
   * The bytes of it that the volume takes.
   */
  uint64_t total_bytes;
  /**
   * The bytes of it that block groups have.
   */
  uint64_t allocated_bytes;
};

/**
 * Takes a device of a list; `data` is the caller's. The data behind `device` is gone afterwards. Another result than 0
 * ends the list.
 */
typedef int (*ubtrfs_device_callback)(const struct ubtrfs_device *device, void *data);

/**
 * The errors of a device that the kernel's btrfs has counted, as `btrfs device stats` has them.
 */
struct ubtrfs_device_errors {
  /**
   * The number within the volume.
   */
  uint64_t id;
  /**
   * Writes that failed.
   */
  uint64_t write_errors;
  /**
   * Reads that failed.
   */
  uint64_t read_errors;
  /**
   * Flushes that failed.
   */
  uint64_t flush_errors;
  /**
   * Blocks whose checksum was another.
   */
  uint64_t corruption_errors;
  /**
   * Tree blocks of another transaction than the one that was meant.
   */
  uint64_t generation_errors;
};

/**
 * Takes the errors of a device of a list; `data` is the caller's. The data behind `errors` is gone afterwards. Another
 * result than 0 ends the list.
 */
typedef int (*ubtrfs_device_errors_callback)(const struct ubtrfs_device_errors *errors, void *data);

/**
 * Counts since a volume was opened for writing.
 */
struct ubtrfs_statistics {
  uint64_t commits;
  /**
   * Syncs of files that wrote a log in place of a commit.
   */
  uint64_t logs;
  /**
   * Syncs of data written in place that needed neither a log nor a commit, only a flush of the devices.
   */
  uint64_t data_flushes;
  /**
   * Data written, in bytes; one copy of each.
   */
  uint64_t data_bytes;
  /**
   * Tree blocks written by commits, in bytes; one copy of each.
   */
  uint64_t metadata_bytes;
  /**
   * Tree blocks written for logs, in bytes; one copy of each.
   */
  uint64_t log_bytes;
};

/**
 * Something that a check found.
 */
struct ubtrfs_issue {
  /**
   * UBTRFS_NOTE, UBTRFS_WARNING or UBTRFS_ERROR.
   */
  unsigned int severity;
  /**
   * The number, which stays from release to release.
   */
  uint16_t number;
  /**
   * The fault and its place, for people.
   */
  const char *message;
};

/**
 * Takes an issue of a list; `data` is the caller's. The data behind `issue` is gone afterwards. Another result than 0
 * ends the list.
 */
typedef int (*ubtrfs_issue_callback)(const struct ubtrfs_issue *issue, void *data);

/**
 * How many issues a check found.
 */
struct ubtrfs_check_report {
  /**
   * The volume is consistent if there are none.
   */
  uint64_t errors;
  uint64_t warnings;
  uint64_t notes;
};

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

/**
 * Hears of a file that could not be transferred or removed, and why; `data` is the caller's. Both texts are gone afterwards.
 */
typedef void (*ubtrfs_problem_callback)(const char *path, const char *message, void *data);

/**
 * How a snapshot is sent. All zeros: the whole, as a stream of version 1.
 */
struct ubtrfs_send_options {
  /**
   * The difference from this read-only subvolume is sent, which the receiver has. May be NULL.
   */
  const struct ubtrfs_subvolume *parent;
  /**
   * Data shared with these read-only subvolumes is sent as clones. The receiver has them.
   */
  const struct ubtrfs_subvolume *const *clone_sources;
  size_t clone_source_count;
  /**
   * UBTRFS_SEND_COMPRESSED and UBTRFS_SEND_NO_DATA.
   */
  unsigned int flags;
  /**
   * Hears of the progress. May be NULL.
   */
  ubtrfs_progress_callback progress;
  /**
   * The argument that `progress` is called with.
   */
  void *progress_data;
};

/**
 * Takes the name of a subvolume that was received; `data` is the caller's. The text is gone afterwards. Another result
 * than 0 ends the list.
 */
typedef int (*ubtrfs_name_callback)(const char *name, void *data);

/**
 * A change of a name between two snapshots.
 */
struct ubtrfs_change {
  /**
   * UBTRFS_REMOVED, UBTRFS_ADDED, UBTRFS_RENAMED or UBTRFS_CHANGED.
   */
  unsigned int kind;
  /**
   * From the root of the snapshot, without a slash before it; empty for the root.
   */
  const char *path;
  /**
   * The path before a rename, else NULL.
   */
  const char *renamed_from;
};

/**
 * Takes a change of a list; `data` is the caller's. The data behind `change` is gone afterwards. Another result than 0
 * ends the list.
 */
typedef int (*ubtrfs_change_callback)(const struct ubtrfs_change *change, void *data);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Tells in English why the last call of this thread that failed did so, with its paths. Empty if none has. The text is
 * valid until the next call of this thread fails.
 */
const char *ubtrfs_error_message(void);

/**
 * Makes options of opening.
 */
int ubtrfs_open_options_new(struct ubtrfs_open_options **options);

/**
 * Frees options. NULL is no error.
 */
void ubtrfs_open_options_free(struct ubtrfs_open_options *options);

/**
 * Opens for reading: others may do the same meanwhile.
 */
int ubtrfs_open_options_set_read_only(struct ubtrfs_open_options *options, bool read_only);

/**
 * Opens for reading, and as of the last commit: so a volume can be read whose log of syncs is damaged.
 */
int ubtrfs_open_options_set_as_committed(struct ubtrfs_open_options *options,
                                         bool as_committed);

/**
 * Opens although devices are missing, as far as the profiles allow.
 */
int ubtrfs_open_options_set_degraded(struct ubtrfs_open_options *options, bool degraded);

/**
 * Adds a place where other devices of the volume are looked for: a file or a folder. In a folder it is what is directly in
 * it; in "/dev" all block devices.
 */
int ubtrfs_open_options_add_scan(struct ubtrfs_open_options *options,
                                 const char *place);

/**
 * Sets how files are compressed that do not say it themselves: "none", "lzo", "zlib" or "zstd". The last two may have a
 * level, as "zstd:3". A new volume's contents are compressed so as well.
 */
int ubtrfs_open_options_set_compression(struct ubtrfs_open_options *options,
                                        const char *compression);

/**
 * Lowers all caches and budgets to their shares of so much memory.
 */
int ubtrfs_open_options_set_memory(struct ubtrfs_open_options *options, uint64_t size_bytes);

/**
 * Sets the size of the cache of tree blocks.
 */
int ubtrfs_open_options_set_cache(struct ubtrfs_open_options *options, uint64_t size_bytes);

/**
 * Sets how long a change may stay uncommitted: 30 seconds unless it is set. With 0 a commit comes on request and under
 * pressure of memory only.
 */
int ubtrfs_open_options_set_commit_interval(struct ubtrfs_open_options *options,
                                            uint32_t seconds);

/**
 * Says whether devices are told of freed space, which makes an image smaller. They are unless it is set.
 */
int ubtrfs_open_options_set_discard(struct ubtrfs_open_options *options,
                                    bool discard);

/**
 * Makes options of new volumes.
 */
int ubtrfs_mkfs_options_new(struct ubtrfs_mkfs_options **options);

/**
 * Frees options. NULL is no error.
 */
void ubtrfs_mkfs_options_free(struct ubtrfs_mkfs_options *options);

/**
 * Sets the label, of at most 255 bytes. NULL is none.
 */
int ubtrfs_mkfs_options_set_label(struct ubtrfs_mkfs_options *options, const char *label);

/**
 * Sets the UUID of the volume, which no other may have. It is random unless it is set.
 */
int ubtrfs_mkfs_options_set_uuid(struct ubtrfs_mkfs_options *options, const uint8_t (*uuid)[16]);

/**
 * Sets the profile of data: "single", "dup", "raid0", "raid1", "raid1c3", "raid1c4", "raid10", "raid5" or "raid6". It
 * follows from the number of devices unless it is set.
 */
int ubtrfs_mkfs_options_set_data_profile(struct ubtrfs_mkfs_options *options,
                                         const char *profile);

/**
 * Sets the profile of trees, as ubtrfs_mkfs_options_set_data_profile.
 */
int ubtrfs_mkfs_options_set_metadata_profile(struct ubtrfs_mkfs_options *options,
                                             const char *profile);

/**
 * Sets the algorithm of the checksums: "crc32c", which is the default, "xxhash", "sha256" or "blake2".
 */
int ubtrfs_mkfs_options_set_checksum(struct ubtrfs_mkfs_options *options,
                                     const char *checksum);

/**
 * Sets the size of a tree block. It is 16 KiB unless it is set.
 */
int ubtrfs_mkfs_options_set_node_size(struct ubtrfs_mkfs_options *options, uint32_t size_bytes);

/**
 * Sets the size of a block of data. It is 4 KiB unless it is set.
 */
int ubtrfs_mkfs_options_set_sector_size(struct ubtrfs_mkfs_options *options, uint32_t size_bytes);

/**
 * Sets and clears features by a list, as of `mkfs.btrfs -O`: "^no-holes,mixed-bg" clears the first and sets the second.
 */
int ubtrfs_mkfs_options_set_features(struct ubtrfs_mkfs_options *options,
                                     const char *list);

/**
 * Fills the volume with what is in a folder of this machine, or in a tar archive, compressed or not.
 */
int ubtrfs_mkfs_options_set_rootdir(struct ubtrfs_mkfs_options *options,
                                    const char *contents);

/**
 * Takes a time, in seconds since 1970, for the present: then the same options and files make the same volume, byte for
 * byte. No file has a later time. An empty volume needs a UUID for that.
 */
int ubtrfs_mkfs_options_set_source_date_epoch(struct ubtrfs_mkfs_options *options,
                                              uint32_t seconds);

/**
 * Makes a directory of what the volume is filled with a subvolume. The path is that within it.
 */
int ubtrfs_mkfs_options_add_subvolume(struct ubtrfs_mkfs_options *options,
                                      const char *dir,
                                      bool read_only);

/**
 * Sets the owner of the root directory of a volume that is not filled. It is user and group 0 unless it is set.
 */
int ubtrfs_mkfs_options_set_root_owner(struct ubtrfs_mkfs_options *options,
                                       uint32_t uid,
                                       uint32_t gid);

/**
 * Cuts a volume that is filled to the least size at which it can still be written to.
 */
int ubtrfs_mkfs_options_set_shrink(struct ubtrfs_mkfs_options *options, bool shrink);

/**
 * Discards what devices hold before a volume is made on them, as mkfs.btrfs does. It is not done unless it is set.
 */
int ubtrfs_mkfs_options_set_discard(struct ubtrfs_mkfs_options *options,
                                    bool discard);

/**
 * Has ubtrfs_volume_format overwrite what files and devices hold.
 */
int ubtrfs_mkfs_options_set_force(struct ubtrfs_mkfs_options *options, bool force);

/**
 * Has a callback hear how each volume is filled that is made with the options. NULL is none. `data` is kept until the
 * options are freed. If the callback ends a filling, there is no volume.
 */
int ubtrfs_mkfs_options_set_progress(struct ubtrfs_mkfs_options *options,
                                     ubtrfs_progress_callback callback,
                                     void *data);

/**
 * Makes options of checks.
 */
int ubtrfs_check_options_new(struct ubtrfs_check_options **options);

/**
 * Frees options. NULL is no error.
 */
void ubtrfs_check_options_free(struct ubtrfs_check_options *options);

/**
 * Reads all data of every mirror as well, and compares it with its checksums.
 */
int ubtrfs_check_options_set_read_data(struct ubtrfs_check_options *options, bool read_data);

/**
 * Sets how much memory the records of a check take. Those beyond go to a temporary file. It is 256 MiB unless it is set.
 */
int ubtrfs_check_options_set_memory(struct ubtrfs_check_options *options,
                                    uint64_t size_bytes);

/**
 * Sets of how many issues the callback hears: the first 1000 unless it is set. All are counted.
 */
int ubtrfs_check_options_set_max_issues(struct ubtrfs_check_options *options, size_t max_issues);

/**
 * Adds a place where other devices are looked for, as ubtrfs_open_options_add_scan.
 */
int ubtrfs_check_options_add_scan(struct ubtrfs_check_options *options, const char *place);

/**
 * Has a callback hear of the progress of each check that takes the options. NULL is none. `data` is kept until the
 * options are freed.
 */
int ubtrfs_check_options_set_progress(struct ubtrfs_check_options *options,
                                      ubtrfs_progress_callback callback,
                                      void *data);

/**
 * Returns the version of the library, such as "0.1.0".
 */
const char *ubtrfs_version(void);

/**
 * Makes a volume in a file that must not exist, and opens it for writing. The file is sparse. The label may be NULL:
 * it has none.
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
 * Makes a volume of so many files that must not exist, each of this size, and opens it for writing. Options may be NULL:
 * those of ubtrfs_volume_create and ubtrfs_volume_open. That a new volume is opened for reading is -EINVAL.
 */
int ubtrfs_volume_create_with(const char *const *images,
                              size_t image_count,
                              uint64_t size_bytes,
                              const struct ubtrfs_mkfs_options *mkfs_options,
                              const struct ubtrfs_open_options *open_options,
                              struct ubtrfs_volume **volume);

/**
 * Makes a volume on so many files and block devices that exist, each as large as it is, and opens it for writing. Their
 * contents are lost. The rest is as for ubtrfs_volume_create_with.
 *
 * -EEXIST if one holds a file system, a partition table or the like, unless ubtrfs_mkfs_options_set_force allows it.
 * -EBUSY if one is in use. Nothing was written then.
 */
int ubtrfs_volume_format(const char *const *devices,
                         size_t device_count,
                         const struct ubtrfs_mkfs_options *mkfs_options,
                         const struct ubtrfs_open_options *open_options,
                         struct ubtrfs_volume **volume);

/**
 * Opens the volume that has all of so many files or devices. Others that it has are looked for where the options say, which
 * may be NULL.
 */
int ubtrfs_volume_open_with(const char *const *images,
                            size_t image_count,
                            const struct ubtrfs_open_options *options,
                            struct ubtrfs_volume **volume);

/**
 * Commits everything and closes the volume. An error means that the last changes are not durable; the handle is gone
 * all the same. NULL is no error.
 *
 * Handles of its subvolumes, files and directories are still to be freed. They change nothing any more, and the file
 * of the volume is in use until the last of them is freed.
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
 * Calls `work`, and commits all that it did at once: after a power cut there is all of it or nothing. Returns when it
 * is durable.
 *
 * Changes by other threads wait meanwhile, so `work` must not wait for a thread that changes this volume. An operation
 * that commits by itself is -EDQUOT within: syncs, subvolumes and snapshots that are made, ubtrfs_receive,
 * ubtrfs_send. If `work` returns another value than 0, that is returned. The work that it did stays then, and becomes
 * durable with the next commit.
 */
int ubtrfs_volume_group(const struct ubtrfs_volume *volume,
                        ubtrfs_work_callback work,
                        void *data);

/**
 * Tells how much space there is.
 */
int ubtrfs_volume_space(const struct ubtrfs_volume *volume, struct ubtrfs_space *space);

/**
 * Lists what block groups have, by kind and profile. If the callback ends the list, its result is returned.
 */
int ubtrfs_volume_block_groups(const struct ubtrfs_volume *volume,
                               ubtrfs_block_groups_callback callback,
                               void *data);

/**
 * Lists the devices by ascending id, those that are missing as well. If the callback ends the list, its result is returned.
 */
int ubtrfs_volume_devices(const struct ubtrfs_volume *volume,
                          ubtrfs_device_callback callback,
                          void *data);

/**
 * Lists the errors of the devices by ascending id. If the callback ends the list, its result is returned.
 */
int ubtrfs_volume_device_errors(const struct ubtrfs_volume *volume,
                                ubtrfs_device_errors_callback callback,
                                void *data);

/**
 * Tells the devices of all space that is not in use, so that an image becomes smaller. Commits before. Returns the bytes.
 */
int64_t ubtrfs_volume_trim(const struct ubtrfs_volume *volume);

/**
 * Tells the devices of a part of the space that is not in use, as ubtrfs_volume_trim. It begins at the address `start`
 * within the volume and goes on for `len` bytes, which may be UINT64_MAX. Free extents below `min_bytes` are left out.
 * Unallocated space has no address, and is trimmed in any case. The callback may be NULL.
 */
int64_t ubtrfs_volume_trim_with(const struct ubtrfs_volume *volume,
                                uint64_t start,
                                uint64_t len,
                                uint64_t min_bytes,
                                ubtrfs_progress_callback progress,
                                void *data);

/**
 * Counts what was written since the volume was opened; zeros if it was opened for reading.
 */
int ubtrfs_volume_statistics(const struct ubtrfs_volume *volume,
                             struct ubtrfs_statistics *statistics);

/**
 * Checks a volume that no program writes to. It only reads, and shares no code with what writes volumes. `flags` is 0
 * or UBTRFS_CHECK_DATA. The callback may be NULL; it hears of the first 1000 issues. If it ends the list, its result
 * is returned. A fault of a volume is no error of the function.
 */
int ubtrfs_check(const char *image,
                 unsigned int flags,
                 ubtrfs_issue_callback callback,
                 void *data,
                 struct ubtrfs_check_report *report);

/**
 * Checks the volume that has all of so many files or devices, as ubtrfs_check, in the way that the options say. They may be
 * NULL.
 */
int ubtrfs_check_with(const char *const *images,
                      size_t image_count,
                      const struct ubtrfs_check_options *options,
                      ubtrfs_issue_callback callback,
                      void *data,
                      struct ubtrfs_check_report *report);

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
 * Opens the subvolume of an id. -ENOENT if there is none.
 */
int ubtrfs_volume_subvolume_by_id(const struct ubtrfs_volume *volume,
                                  uint64_t id,
                                  struct ubtrfs_subvolume **subvolume);

/**
 * Opens the subvolume that a mount shows if none is named.
 */
int ubtrfs_volume_default_subvolume(const struct ubtrfs_volume *volume,
                                    struct ubtrfs_subvolume **subvolume);

/**
 * Has a mount show this subvolume if none is named.
 */
int ubtrfs_volume_set_default_subvolume(const struct ubtrfs_volume *volume,
                                        const struct ubtrfs_subvolume *subvolume);

/**
 * Runs commits until the space of all deleted subvolumes is free.
 */
int ubtrfs_volume_free_deleted_subvolumes(const struct ubtrfs_volume *volume);

/**
 * Frees a handle. NULL is no error.
 */
void ubtrfs_subvolume_free(struct ubtrfs_subvolume *subvolume);

/**
 * Returns the id of the subvolume within its volume; 0 for NULL.
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
 * Sets times. As for utimensat, `nsec` may be UTIME_NOW or UTIME_OMIT of sys/stat.h: the time of this change, and no change.
 * A time that is NULL stays as well. `flags` is 0 or UBTRFS_NOFOLLOW.
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
 * Sets an extended attribute. `flags` is 0, or UBTRFS_XATTR_CREATE or UBTRFS_XATTR_REPLACE, and UBTRFS_NOFOLLOW.
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

/**
 * Reserves space, punches a hole or zeroes a range, as fallocate(2). `mode` is 0, FALLOC_FL_PUNCH_HOLE |
 * FALLOC_FL_KEEP_SIZE, or FALLOC_FL_ZERO_RANGE.
 */
int ubtrfs_fallocate(const struct ubtrfs_file *file,
                     int mode,
                     uint64_t offset,
                     uint64_t size_bytes);

/**
 * Finds data or a hole at an offset or behind it, as lseek(2). `whence` is SEEK_DATA or SEEK_HOLE. Returns the offset, or
 * -ENXIO if there is none.
 */
int64_t ubtrfs_lseek(const struct ubtrfs_file *file,
                     uint64_t offset,
                     int whence);

/**
 * Has a range of `to` share a range of `from`: no data is copied. Both begin at blocks, and end at one or at the end of
 * `from`.
 */
int ubtrfs_clone_range(const struct ubtrfs_file *from,
                       uint64_t from_offset,
                       uint64_t size_bytes,
                       const struct ubtrfs_file *to,
                       uint64_t to_offset);

/**
 * Makes options of transfers of trees.
 */
int ubtrfs_transfer_options_new(struct ubtrfs_transfer_options **options);

/**
 * Frees options. NULL is no error.
 */
void ubtrfs_transfer_options_free(struct ubtrfs_transfer_options *options);

/**
 * Has a callback hear of the progress of each call that takes the options. NULL is none. `data` is kept until the options
 * are freed.
 */
int ubtrfs_transfer_options_set_progress(struct ubtrfs_transfer_options *options,
                                         ubtrfs_progress_callback callback,
                                         void *data);

/**
 * Says whether copies keep owners, modes, times, extended attributes and hard links. They do unless it is set. Without it
 * a file that exists is overwritten, and keeps its owner and mode.
 */
int ubtrfs_transfer_options_set_preserve(struct ubtrfs_transfer_options *options,
                                         bool preserve);

/**
 * Copies what a link leads to, if the path of the original is one. Links below are copied as links in any case.
 */
int ubtrfs_transfer_options_set_follow(struct ubtrfs_transfer_options *options,
                                       bool follow);

/**
 * Copies what is in a directory into one that exists. -ENOTDIR if one of the two is none.
 */
int ubtrfs_transfer_options_set_contents(struct ubtrfs_transfer_options *options, bool contents);

/**
 * Sets the permission bits that files in a volume go without if their modes are not kept, and directories of which an
 * archive says nothing. It is 0 unless it is set.
 */
int ubtrfs_transfer_options_set_umask(struct ubtrfs_transfer_options *options,
                                      uint32_t umask);

/**
 * Sets when copies share the data of their originals: "auto", which is where they can, "always" or "never".
 */
int ubtrfs_transfer_options_set_reflink(struct ubtrfs_transfer_options *options,
                                        const char *reflink);

/**
 * Sets the treatment of holes: "auto", which keeps them, "always", which makes them of blocks of zeros as well, or
 * "never".
 */
int ubtrfs_transfer_options_set_sparse(struct ubtrfs_transfer_options *options,
                                       const char *sparse);

/**
 * Removes subvolumes as other directories: all that is in them, then the empty subvolume. They are a problem unless it is
 * set.
 */
int ubtrfs_transfer_options_set_enter_subvolumes(struct ubtrfs_transfer_options *options,
                                                 bool enter_subvolumes);

/**
 * Makes options of receiving.
 */
int ubtrfs_receive_options_new(struct ubtrfs_receive_options **options);

/**
 * Frees options. NULL is no error.
 */
void ubtrfs_receive_options_free(struct ubtrfs_receive_options *options);

/**
 * Has a callback hear of the progress of each call that takes the options. NULL is none. `data` is kept until the options
 * are freed.
 */
int ubtrfs_receive_options_set_progress(struct ubtrfs_receive_options *options,
                                        ubtrfs_progress_callback callback,
                                        void *data);

/**
 * Decompresses data that is compressed in the stream, and stores it as other data.
 */
int ubtrfs_receive_options_set_force_decompress(struct ubtrfs_receive_options *options,
                                                bool force_decompress);

/**
 * Receives all streams that are behind each other. Without it, nothing behind the end of the first is read.
 */
int ubtrfs_receive_options_set_all_streams(struct ubtrfs_receive_options *options,
                                           bool all_streams);

/**
 * Copies a file, or a directory with all below, to another path. Data is shared. Returns how many files it could not copy:
 * the callback, which may be NULL, hears of each.
 */
int64_t ubtrfs_copy_tree(const struct ubtrfs_subvolume *subvolume,
                         const char *from,
                         const char *to,
                         ubtrfs_problem_callback callback,
                         void *data);

/**
 * Copies as ubtrfs_copy_tree, to a path in a subvolume that may be of another volume, in the way that the options say. They
 * may be NULL. Data is shared within a volume.
 */
int64_t ubtrfs_copy_tree_with(const struct ubtrfs_subvolume *subvolume,
                              const char *from,
                              const struct ubtrfs_subvolume *to_subvolume,
                              const char *to,
                              const struct ubtrfs_transfer_options *options,
                              ubtrfs_problem_callback callback,
                              void *data);

/**
 * Copies a file of this machine, or a directory with all below, into the volume. Links are copied as links. Returns as
 * ubtrfs_copy_tree.
 */
int64_t ubtrfs_copy_from_host(const struct ubtrfs_subvolume *subvolume,
                              const char *host,
                              const char *to,
                              ubtrfs_problem_callback callback,
                              void *data);

/**
 * Copies as ubtrfs_copy_from_host, in the way that the options say, which may be NULL.
 */
int64_t ubtrfs_copy_from_host_with(const struct ubtrfs_subvolume *subvolume,
                                   const char *host,
                                   const char *to,
                                   const struct ubtrfs_transfer_options *options,
                                   ubtrfs_problem_callback callback,
                                   void *data);

/**
 * Copies a file, or a directory with all below, to this machine. Returns as ubtrfs_copy_tree.
 */
int64_t ubtrfs_copy_to_host(const struct ubtrfs_subvolume *subvolume,
                            const char *from,
                            const char *host,
                            ubtrfs_problem_callback callback,
                            void *data);

/**
 * Copies as ubtrfs_copy_to_host, in the way that the options say, which may be NULL.
 */
int64_t ubtrfs_copy_to_host_with(const struct ubtrfs_subvolume *subvolume,
                                 const char *from,
                                 const char *host,
                                 const struct ubtrfs_transfer_options *options,
                                 ubtrfs_problem_callback callback,
                                 void *data);

/**
 * Writes a file, or a directory with all below, as a tar archive to a file descriptor. Returns as ubtrfs_copy_tree.
 */
int64_t ubtrfs_export_tar(const struct ubtrfs_subvolume *subvolume,
                          const char *at,
                          int fd,
                          ubtrfs_problem_callback callback,
                          void *data);

/**
 * Writes an archive as ubtrfs_export_tar. The options, which may be NULL, have the progress; the others mean nothing.
 */
int64_t ubtrfs_export_tar_with(const struct ubtrfs_subvolume *subvolume,
                               const char *at,
                               int fd,
                               const struct ubtrfs_transfer_options *options,
                               ubtrfs_problem_callback callback,
                               void *data);

/**
 * Unpacks a tar archive, compressed or not, from a file descriptor into a directory. Files that exist are replaced. Returns
 * as ubtrfs_copy_tree.
 */
int64_t ubtrfs_import_tar(const struct ubtrfs_subvolume *subvolume,
                          int fd,
                          const char *dir,
                          ubtrfs_problem_callback callback,
                          void *data);

/**
 * Unpacks an archive as ubtrfs_import_tar. The options, which may be NULL, have the progress and the umask; the others mean
 * nothing.
 */
int64_t ubtrfs_import_tar_with(const struct ubtrfs_subvolume *subvolume,
                               int fd,
                               const char *dir,
                               const struct ubtrfs_transfer_options *options,
                               ubtrfs_problem_callback callback,
                               void *data);

/**
 * Removes a file, or a directory with all below, past files that cannot be removed. Links are removed themselves. The
 * options, which may be NULL, have the progress and the treatment of subvolumes. Returns how many problems there were: the
 * callback, which may be NULL, hears of each. A directory in which something stays is one.
 */
int64_t ubtrfs_remove_tree(const struct ubtrfs_subvolume *subvolume,
                           const char *at,
                           const struct ubtrfs_transfer_options *options,
                           ubtrfs_problem_callback callback,
                           void *data);

/**
 * Writes a read-only subvolume to a file descriptor, as a stream that ubtrfs_receive and btrfs receive take. Commits
 * before. The options may be NULL.
 */
int ubtrfs_send(const struct ubtrfs_subvolume *subvolume,
                const struct ubtrfs_send_options *options,
                int fd);

/**
 * Makes the subvolumes of a stream in a directory, from a file descriptor. Nothing outside them is changed, whatever
 * the stream says. The callback, which may be NULL, hears of the name of each. If it ends the list, its result is
 * returned.
 */
int ubtrfs_receive(const struct ubtrfs_subvolume *subvolume,
                   const char *dir,
                   int fd,
                   ubtrfs_name_callback callback,
                   void *data);

/**
 * Makes the subvolumes of streams in a directory, as ubtrfs_receive, in the way that the options say. They may be NULL. If
 * the progress ends the call, the subvolume that it was in stays, and is writable.
 */
int ubtrfs_receive_with(const struct ubtrfs_subvolume *subvolume,
                        const char *dir,
                        int fd,
                        const struct ubtrfs_receive_options *options,
                        ubtrfs_name_callback callback,
                        void *data);

/**
 * Tells what changed from one read-only subvolume to another, in the order of paths. Commits before. If the callback
 * ends the list, its result is returned.
 */
int ubtrfs_changes(const struct ubtrfs_subvolume *old,
                   const struct ubtrfs_subvolume *new_,
                   ubtrfs_change_callback callback,
                   void *data);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* UBTRFS_H */
