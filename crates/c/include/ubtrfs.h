/* ubtrfs: btrfs in user space, as a library for C.
 *
 * Generated from crates/c/src by `cargo xtask header`. Link with `pkg-config --cflags --libs ubtrfs`.
 *
 * Rules for all functions:
 *
 * - A function that returns int returns 0, or a negative errno such as -ENOENT. A function that returns int64_t returns
 *   a size, or a negative errno. ubtrfs_error_message() returns the details.
 * - Results are stored through the last pointer. After an error, the memory for a handle contains NULL.
 * - Text and paths are NUL-terminated bytes of any encoding. A path begins at the root of the subvolume, with or
 *   without a leading slash.
 * - A pointer must point to a living object of its type, and a buffer must have the given size. A NULL handle or text
 *   is -EINVAL, unless documented otherwise. A buffer of size 0 may be NULL.
 * - Functions that copy a value copy all of it. If it is longer than the buffer, they return -ERANGE. If the buffer has
 *   size 0, they return the size of the value.
 * - Handles may be used by several threads at the same time, except a struct ubtrfs_dir. No other thread may use a
 *   handle while it is closed or freed.
 * - The library keeps no pointer of the caller after a function returns, except the `data` of a callback in options.
 * - A callback must return: no exception and no longjmp may leave it. It is called on the thread of the caller, and may
 *   call functions of the library, except to close or free handles that the interrupted call uses.
 * - The structures here never change, even in later releases, and have no hidden members. Incomplete types, such as
 *   struct ubtrfs_open_options, are handles. Later releases may add names of options.
 * - No permission is checked, and no umask applies. New files belong to user and group 0.
 * - A bug in the library returns -ENOTRECOVERABLE, and does not abort.
 *
 * Changes stay in memory until ubtrfs_volume_sync or ubtrfs_volume_close, or for at most 30 seconds. After a power cut
 * the volume has the state of a commit.
 *
 * A volume belongs to the process that opened it. In a forked child, calls on it return -EBUSY, and freeing its handles
 * has no effect on it.
 */

#ifndef UBTRFS_H
#define UBTRFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * A file, or a command of a received stream, is next.
 */
#define UBTRFS_EVENT_BEGIN 1

/**
 * A part of the work is complete, or time has passed.
 */
#define UBTRFS_EVENT_ADVANCE 2

/**
 * A phase of a check has begun or continues.
 */
#define UBTRFS_EVENT_PHASE 3

/**
 * A file was not transferred or removed, or only in part, or a command failed. The call continues.
 */
#define UBTRFS_EVENT_PROBLEM 4

/**
 * A file was removed.
 */
#define UBTRFS_EVENT_REMOVED 5

/**
 * A received subvolume is complete and read-only.
 */
#define UBTRFS_EVENT_FINISHED 6

/**
 * A received subvolume has failed commands. It is kept as it is, and writable.
 */
#define UBTRFS_EVENT_UNFINISHED 7

/**
 * Open read-only. Other processes may also open the volume read-only.
 */
#define UBTRFS_READ_ONLY 1

/**
 * Block groups of data.
 */
#define UBTRFS_DATA 0

/**
 * Block groups of metadata.
 */
#define UBTRFS_METADATA 1

/**
 * Block groups of the chunk tree.
 */
#define UBTRFS_SYSTEM 2

/**
 * Block groups of data and metadata.
 */
#define UBTRFS_MIXED 3

/**
 * Also read all data of every mirror, and verify its checksums.
 */
#define UBTRFS_CHECK_DATA 1

/**
 * A harmless leftover of normal operation, such as of a power cut.
 */
#define UBTRFS_NOTE 0

/**
 * The kernel tolerates it.
 */
#define UBTRFS_WARNING 1

/**
 * The volume is not consistent.
 */
#define UBTRFS_ERROR 2

/**
 * A rename must not replace an existing file.
 */
#define UBTRFS_RENAME_NOREPLACE 1

/**
 * A rename exchanges two names.
 */
#define UBTRFS_RENAME_EXCHANGE 2

/**
 * Do not follow a symbolic link at the end of the path.
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
 * Send compressed data without decompressing it, in a stream of version 2.
 */
#define UBTRFS_SEND_COMPRESSED 1

/**
 * Send only the changed ranges of files, without their data.
 */
#define UBTRFS_SEND_NO_DATA 2

/**
 * A name was removed.
 */
#define UBTRFS_REMOVED 0

/**
 * A name was added.
 */
#define UBTRFS_ADDED 1

/**
 * The file of a name had another name before.
 */
#define UBTRFS_RENAMED 2

/**
 * The file of an unchanged name was changed.
 */
#define UBTRFS_CHANGED 3

/**
 * Options for checking a volume. The defaults are the same as for ubtrfs_check without flags.
 */
struct ubtrfs_check_options;

/**
 * A directory that is being listed.
 */
struct ubtrfs_dir;

/**
 * An open file.
 */
struct ubtrfs_file;

/**
 * Options for creating a volume. The defaults are the same as for ubtrfs_volume_create.
 */
struct ubtrfs_mkfs_options;

/**
 * Options for opening a volume. The defaults are the same as for ubtrfs_volume_open with write access.
 */
struct ubtrfs_open_options;

/**
 * Options for receiving a stream. The defaults are the same as for ubtrfs_receive.
 */
struct ubtrfs_receive_options;

/**
 * A subvolume: a tree of files. Paths begin at its root.
 */
struct ubtrfs_subvolume;

/**
 * Options for copying, unpacking or removing a tree. The defaults are the same as for the functions without options.
 */
struct ubtrfs_transfer_options;

/**
 * An open volume.
 */
struct ubtrfs_volume;

/**
 * The progress of a long call. Counts are totals of the whole call, and 0 if they do not apply to it.
 */
struct ubtrfs_progress {
  /**
   * The event, such as UBTRFS_EVENT_BEGIN. Later versions may have others.
   */
  unsigned int event;
  /**
   * The file of the event or the current file, in the form of error messages. For a received stream, the subvolume
   * and the path within. NULL if there is no file.
   */
  const char *path;
  /**
   * The reason of a problem, for display; otherwise NULL.
   */
  const char *message;
  /**
   * The subject of a check, for display, such as "extents"; otherwise NULL.
   */
  const char *subject;
  /**
   * The number of the phase of a check, from 1.
   */
  int phase;
  /**
   * The number of phases of a check.
   */
  int phases;
  /**
   * The number of files that were begun, filled in or removed, or of commands of a received stream.
   */
  uint64_t files;
  /**
   * The number of bytes of file data that were copied, filled in or archived, of a sent or received stream, or of
   * trimmed space. Shared data is not counted.
   */
  uint64_t bytes;
  /**
   * The number of tree blocks that a check has read.
   */
  uint64_t blocks;
  /**
   * The number of issues that a check has found.
   */
  uint64_t issues;
};

/**
 * Receives the progress of a call: its events, at least before each file and after each part of its data, with the
 * caller's `data`. `progress` is valid only during the callback. A result other than 0 cancels the call, which returns
 * -EINTR. After that the callback is not called again, and completed work is kept.
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
   * The id within the volume. The top level has 5.
   */
  uint64_t id;
  /**
   * The path from the top level, without a leading slash; empty for the top level. NULL while it is being deleted.
   */
  const char *path;
  uint8_t uuid[16];
  /**
   * The UUID of the subvolume that it is a snapshot of, otherwise zeros.
   */
  uint8_t parent_uuid[16];
  /**
   * The UUID of the sent subvolume, if this one was received, otherwise zeros.
   */
  uint8_t received_uuid[16];
  /**
   * The transaction that last changed it.
   */
  uint64_t generation;
  /**
   * The transaction that created it.
   */
  uint64_t created_generation;
  struct ubtrfs_timespec created;
  /**
   * The time of the last change to one of its files.
   */
  struct ubtrfs_timespec changed;
  bool is_read_only;
  /**
   * Whether it is deleted, but its space is not all free yet.
   */
  bool is_deleted;
};

/**
 * Called for each subvolume of a list, with the caller's `data`. `info` is valid only during the callback. A result
 * other than 0 ends the list.
 */
typedef int (*ubtrfs_subvolume_callback)(const struct ubtrfs_subvolume_info *info, void *data);

/**
 * Runs the operations of a group, with the caller's `data`. A result other than 0 means that they failed.
 */
typedef int (*ubtrfs_work_callback)(void *data);

/**
 * The space of a volume, in bytes, as the kernel's btrfs reports it for the same volume.
 */
struct ubtrfs_space {
  /**
   * The size as in df: the sum of the devices, divided by the number of copies of data.
   */
  uint64_t total_bytes;
  /**
   * The number of unused bytes, divided by the number of copies of data.
   */
  uint64_t free_bytes;
  /**
   * The number of bytes that data can be written to.
   */
  uint64_t available_bytes;
  /**
   * The number of bytes reserved for deleting files on a full volume.
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
   * The profile, such as "RAID1" or "single"; NULL if it is unknown.
   */
  const char *profile;
  /**
   * The capacity of their content in bytes.
   */
  uint64_t total_bytes;
  /**
   * The number of used bytes.
   */
  uint64_t used_bytes;
};

/**
 * Called for each kind and profile of block groups, with the caller's `data`. `groups` is valid only during the
 * callback. A result other than 0 ends the list.
 */
typedef int (*ubtrfs_block_groups_callback)(const struct ubtrfs_block_groups *groups, void *data);

/**
 * A device of a volume.
 */
struct ubtrfs_device {
  /**
   * The id within the volume.
   */
  uint64_t id;
  uint8_t uuid[16];
  /**
   * The path of the device; NULL if it is missing.
   */
  const char *path;
  /**
   * The number of bytes of the device that the volume uses.
   */
  uint64_t total_bytes;
  /**
   * The number of bytes that are allocated to block groups.
   */
  uint64_t allocated_bytes;
};

/**
 * Called for each device of a list, with the caller's `data`. `device` is valid only during the callback. A result
 * other than 0 ends the list.
 */
typedef int (*ubtrfs_device_callback)(const struct ubtrfs_device *device, void *data);

/**
 * The error counters of a device, as in `btrfs device stats`. They include errors that the kernel's btrfs has counted.
 */
struct ubtrfs_device_errors {
  /**
   * The id within the volume.
   */
  uint64_t id;
  /**
   * The number of failed writes.
   */
  uint64_t write_errors;
  /**
   * The number of failed reads.
   */
  uint64_t read_errors;
  /**
   * The number of failed flushes.
   */
  uint64_t flush_errors;
  /**
   * The number of blocks with a wrong checksum.
   */
  uint64_t corruption_errors;
  /**
   * The number of tree blocks with a wrong transaction id.
   */
  uint64_t generation_errors;
};

/**
 * Called for the error counters of each device, with the caller's `data`. `errors` is valid only during the callback.
 * A result other than 0 ends the list.
 */
typedef int (*ubtrfs_device_errors_callback)(const struct ubtrfs_device_errors *errors, void *data);

/**
 * Counts since a volume was opened for writing.
 */
struct ubtrfs_statistics {
  uint64_t commits;
  /**
   * The number of fsyncs that wrote a log in place of a commit.
   */
  uint64_t logs;
  /**
   * The number of fsyncs after overwriting data in place that needed neither a log nor a commit, only a flush of the
   * devices.
   */
  uint64_t data_flushes;
  /**
   * Written data in bytes, counting one copy.
   */
  uint64_t data_bytes;
  /**
   * Tree blocks written by commits in bytes, counting one copy.
   */
  uint64_t metadata_bytes;
  /**
   * Tree blocks written for logs in bytes, counting one copy.
   */
  uint64_t log_bytes;
};

/**
 * An issue that a check found.
 */
struct ubtrfs_issue {
  /**
   * UBTRFS_NOTE, UBTRFS_WARNING or UBTRFS_ERROR.
   */
  unsigned int severity;
  /**
   * The number of the kind of issue, which is stable across releases.
   */
  uint16_t number;
  /**
   * The problem and its location, for display.
   */
  const char *message;
};

/**
 * Called for each issue of a list, with the caller's `data`. `issue` is valid only during the callback. A result other
 * than 0 ends the list.
 */
typedef int (*ubtrfs_issue_callback)(const struct ubtrfs_issue *issue, void *data);

/**
 * The numbers of issues that a check found.
 */
struct ubtrfs_check_report {
  /**
   * The volume is consistent if this is 0.
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
   * The subvolume of the file. Together with `ino` it identifies the file in the volume.
   */
  uint64_t subvolume_id;
  uint64_t ino;
  uint64_t size;
  /**
   * The allocated space, in units of 512 bytes.
   */
  uint64_t blocks;
  uint64_t nlink;
  /**
   * The device number of a device file.
   */
  uint64_t rdev;
  /**
   * File type and permissions: use S_ISDIR(mode) and similar macros of sys/stat.h.
   */
  uint32_t mode;
  uint32_t uid;
  uint32_t gid;
  struct ubtrfs_timespec atime;
  struct ubtrfs_timespec mtime;
  struct ubtrfs_timespec ctime;
  /**
   * The time of creation.
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
   * Only the file type: use S_ISDIR(mode) and similar macros of sys/stat.h.
   */
  uint32_t mode;
  /**
   * Whether the entry is the root of a subvolume.
   */
  bool is_subvolume;
};

/**
 * Options for sending a snapshot. All zeros: the whole snapshot, as a stream of version 1.
 */
struct ubtrfs_send_options {
  /**
   * Send the difference from this read-only subvolume, which the receiver must have. May be NULL.
   */
  const struct ubtrfs_subvolume *parent;
  /**
   * Send data that is shared with these read-only subvolumes as clones. The receiver must have them.
   */
  const struct ubtrfs_subvolume *const *clone_sources;
  size_t clone_source_count;
  /**
   * UBTRFS_SEND_COMPRESSED and UBTRFS_SEND_NO_DATA.
   */
  unsigned int flags;
  /**
   * Receives the progress. May be NULL.
   */
  ubtrfs_progress_callback progress;
  /**
   * The argument of `progress`.
   */
  void *progress_data;
};

/**
 * A change of a name between two snapshots.
 */
struct ubtrfs_change {
  /**
   * UBTRFS_REMOVED, UBTRFS_ADDED, UBTRFS_RENAMED or UBTRFS_CHANGED.
   */
  unsigned int kind;
  /**
   * The path from the root of the snapshot, without a leading slash; empty for the root.
   */
  const char *path;
  /**
   * The path before a rename, otherwise NULL.
   */
  const char *renamed_from;
};

/**
 * Called for each change of a list, with the caller's `data`. `change` is valid only during the callback. A result
 * other than 0 ends the list.
 */
typedef int (*ubtrfs_change_callback)(const struct ubtrfs_change *change, void *data);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the English message of this thread's last error, including paths. It is empty if no call has failed. The
 * text is valid until the next call of this thread fails.
 */
const char *ubtrfs_error_message(void);

/**
 * Creates options for opening a volume.
 */
int ubtrfs_open_options_new(struct ubtrfs_open_options **options);

/**
 * Frees options. NULL is allowed.
 */
void ubtrfs_open_options_free(struct ubtrfs_open_options *options);

/**
 * Sets an option by its name. Values are texts. An unknown name or an invalid value is -EINVAL, and changes nothing.
 *
 * - "read_only": true or false. Opens the volume read-only. Other processes may also open it read-only. Default: false.
 * - "as_committed": true or false. Opens the volume read-only, as of the last commit: later fsyncs are ignored. Use
 *   this to read a volume whose log of such fsyncs is damaged. Default: false.
 * - "degraded": true or false. Opens the volume although devices are missing, as far as the profiles allow. Default:
 *   false.
 * - "scan": a path, added to earlier ones. Sets the places to search for the volume's other devices: files, folders
 *   (for the files directly in them) or `/dev` (for all block devices). Without one, only the named devices are opened.
 *   Default: no path.
 * - "volume": a text. Chooses the volume if the disks hold several: its UUID or label, or the name of its array or LVM
 *   volume. Only for volumes on partitions, md arrays and LVM volumes, which are only read. Default: none.
 * - "memory_bytes": a number of bytes, such as 64m. Limits all caches and buffers to their shares of this number of
 *   bytes of memory. Default: no limit.
 * - "cache_bytes": a number of bytes, such as 64m. Sets the size of the cache of tree blocks, in bytes. Default: 256m.
 * - "decompressed_bytes": a number of bytes, such as 64m. Sets the size of the cache of decompressed extents, in bytes.
 *   Default: 32m.
 * - "delta_bytes": a number of bytes, such as 64m. Sets the memory limit for the changes of one transaction, in bytes.
 *   Operations wait if a transaction uses it up while the previous one is being committed. Default: 128m.
 * - "buffer_bytes": a number of bytes, such as 64m. Sets the memory limit for buffered data, in bytes. A write beyond
 *   it first writes data back. Default: 64m.
 * - "commit_interval": a number of seconds, or never. Sets the longest time that a change stays uncommitted. Without
 *   one, the caller's thread commits, only on request and under memory pressure. Default: 30.
 * - "lazy_times": true or false. Keeps pure time changes in memory until the file changes otherwise or is synced, for
 *   at most a day. A crash may lose them. Default: false.
 * - "fsync_log": true or false. Writes a log in place of a commit to sync a single file or directory, if the log can
 *   represent the changes. Default: true.
 * - "flush_on_commit": true or false. Writes back the data of all files when one file is synced. Default: false.
 * - "barriers": true or false. Flushes the caches of devices in each commit and sync. If disabled, a crash of the
 *   machine can destroy the volume; a crash of the program cannot. For images that are rebuilt after a crash. Default:
 *   true.
 * - "clear_free_space_tree": true or false. Distrusts the free-space tree, and rebuilds it in the first commit that has
 *   room for it. The volume commits even if nothing else changes. Only for writing; no effect on a volume without such
 *   a tree. Default: false.
 * - "free_space_tree": true or false. Adds a free-space tree to a volume without one, and drops its free-space caches,
 *   like the kernel's mount option `space_cache=v2`. Only for writing. Default: false.
 * - "acls": true or false. Enables POSIX ACLs. If disabled, new files get no ACL, and stored ACLs are ignored but kept.
 *   Default: true.
 * - "compress": none, lzo, zlib[:1-9] or zstd[:1-15]. Sets the compression of files without a flag or property of their
 *   own. Also applies to the initial contents of a new volume. Default: none.
 * - "max_inline_bytes": a number of bytes, such as 64m. Sets the size of the largest inline file, in bytes; 0 disables
 *   inline files. The limit is the room in a leaf and, unless the file is compressed, less than a sector. Default: 2k.
 * - "no_data_cow": true or false. Overwrites new files in place, without checksums and compression, like `-o
 *   nodatacow`. Default: false.
 * - "no_data_sum": true or false. Stores new files without checksums, like `-o nodatasum`: corruption is then not
 *   detected. Default: false.
 * - "discard": true, false, sync or async. Sets when freed space is discarded in the file or on the device. By default
 *   that is in the background and when the volume is closed, if a device supports discards. A trim discards at any
 *   time. Default: true.
 */
int ubtrfs_open_options_set(struct ubtrfs_open_options *options,
                            const char *name,
                            const char *value);

/**
 * Creates options for new volumes.
 */
int ubtrfs_mkfs_options_new(struct ubtrfs_mkfs_options **options);

/**
 * Frees options. NULL is allowed.
 */
void ubtrfs_mkfs_options_free(struct ubtrfs_mkfs_options *options);

/**
 * Sets an option by its name. Values are texts. An unknown name or an invalid value is -EINVAL, and changes nothing.
 *
 * - "label": a text. Sets the label, of at most 255 bytes.
 * - "uuid": a UUID. Sets the UUID of the volume, which must be unique. The default is a random UUID.
 * - "data": single, dup, raid0, raid1, raid1c3, raid1c4, raid10, raid5 or raid6. Sets the profile of data. The default
 *   depends on the number of devices.
 * - "metadata": single, dup, raid0, raid1, raid1c3, raid1c4, raid10, raid5 or raid6. Sets the profile of metadata. The
 *   default depends on the number of devices.
 * - "checksum": crc32c, xxhash, sha256 or blake2. Sets the checksum algorithm. The default is crc32c.
 * - "node_size": a number of bytes. Sets the size of a tree block. The default is 16 KiB.
 * - "sector_size": a number of bytes. Sets the size of a data block. The default is 4 KiB.
 * - "features": a list as in mkfs.btrfs -O. Sets and clears features: "^no-holes,mixed-bg" clears the first and sets
 *   the second.
 * - "rootdir": a path. Fills the volume with the contents of a folder of the host, or of a tar archive, compressed or
 *   not.
 * - "source_date_epoch": seconds since 1970. Uses this time as the current time: then the same options and files
 *   produce the same volume, byte for byte. No file has a later time. An empty volume also needs a UUID for that.
 * - "subvolumes": a path, added to earlier ones. Turns a directory of the initial contents into a subvolume. The path
 *   is relative to the contents.
 * - "read_only_subvolumes": a path, added to earlier ones. Turns a directory of the initial contents into a read-only
 *   subvolume.
 * - "owner": UID:GID. Sets the owner of all initial files. The default is their own.
 * - "root_owner": UID:GID. Sets the owner of the root directory of a volume without initial contents. The default is
 *   0:0.
 * - "dense": a path, added to earlier ones. Writes out the holes of an initial file, or of all files in a directory, as
 *   zeros.
 * - "reflink": true or false. Makes an image share blocks with the initial files, if both are on a file system that
 *   supports this.
 * - "growth": never, if_needed or freely. Sets whether images may grow to hold the initial contents. The default is
 *   never.
 * - "shrink": true or false. Truncates a filled volume to the minimum size at which it is still writable.
 * - "scratch_dir": a path. Sets the folder for temporary files while a volume is filled.
 * - "discard_before": true or false. Discards the contents of devices before creating a volume on them, as mkfs.btrfs
 *   does. The default is false.
 * - "force": true or false. Allows ubtrfs_volume_format to overwrite existing data.
 */
int ubtrfs_mkfs_options_set(struct ubtrfs_mkfs_options *options,
                            const char *name,
                            const char *value);

/**
 * Sets a callback for the progress of filling new volumes with these options. NULL removes it. `data` is kept until
 * the options are freed. If the callback ends the call, no volume is created.
 */
int ubtrfs_mkfs_options_set_progress(struct ubtrfs_mkfs_options *options,
                                     ubtrfs_progress_callback callback,
                                     void *data);

/**
 * Creates options for checks.
 */
int ubtrfs_check_options_new(struct ubtrfs_check_options **options);

/**
 * Frees options. NULL is allowed.
 */
void ubtrfs_check_options_free(struct ubtrfs_check_options *options);

/**
 * Sets an option by its name. Values are texts. An unknown name or an invalid value is -EINVAL, and changes nothing.
 *
 * - "read_data": true or false. Also reads all data of every mirror, and verifies its checksums.
 * - "degraded": true or false. Checks the volume although devices are missing. Each missing device is a warning then,
 *   instead of an error.
 * - "memory_bytes": a number. Sets the memory limit of buffers and caches, in bytes. Further records go to a temporary
 *   file. The default is 256 MiB, or a third of the memory that the process may use if that is less.
 * - "max_issues": a number. Sets the maximum number of listed issues; 1000 by default. All issues are counted.
 * - "superblock_copy": a number. Uses the trees of this copy of the superblock: 0, 1 or 2. The default is the newest.
 * - "backup_root": true or false. Uses the trees of the newest readable backup root, if possible of an earlier
 *   transaction.
 * - "tree_root": a number. Uses the root tree at this logical address.
 * - "chunk_root": a number. Uses the chunk tree at this logical address.
 * - "volume": a text. Chooses the volume if the disks hold several, as for opening.
 * - "scan": a path. Adds a file or a folder to the search for other devices, as for opening.
 */
int ubtrfs_check_options_set(struct ubtrfs_check_options *options,
                             const char *name,
                             const char *value);

/**
 * Sets a callback for the progress of checks with these options. NULL removes it. `data` is kept until the options are
 * freed.
 */
int ubtrfs_check_options_set_progress(struct ubtrfs_check_options *options,
                                      ubtrfs_progress_callback callback,
                                      void *data);

/**
 * Returns the version of the library, such as "0.1.0".
 */
const char *ubtrfs_version(void);

/**
 * Creates a volume in a file that must not exist, and opens it for writing. The file is sparse. The label may be NULL,
 * which means no label.
 */
int ubtrfs_volume_create(const char *image,
                         uint64_t size_bytes,
                         const char *label,
                         struct ubtrfs_volume **volume);

/**
 * Opens the volume in a file or on a device. Opening for writing is exclusive; UBTRFS_READ_ONLY is the only flag.
 */
int ubtrfs_volume_open(const char *image,
                       unsigned int flags,
                       struct ubtrfs_volume **volume);

/**
 * Creates a volume of `image_count` files that must not exist, each of this size, and opens it for writing. NULL
 * options have the defaults of ubtrfs_volume_create and ubtrfs_volume_open. Opening a new volume read-only fails with
 * -EINVAL.
 */
int ubtrfs_volume_create_with(const char *const *images,
                              size_t image_count,
                              uint64_t size_bytes,
                              const struct ubtrfs_mkfs_options *mkfs_options,
                              const struct ubtrfs_open_options *open_options,
                              struct ubtrfs_volume **volume);

/**
 * Creates a volume on existing files and block devices, which keep their sizes, and opens it for writing. Their
 * contents are lost. Otherwise the same as ubtrfs_volume_create_with.
 *
 * The error is -EEXIST if one contains a file system, a partition table or similar, unless
 * the option "force" allows it. The error is -EBUSY if one is in use. Nothing is written in both cases.
 */
int ubtrfs_volume_format(const char *const *devices,
                         size_t device_count,
                         const struct ubtrfs_mkfs_options *mkfs_options,
                         const struct ubtrfs_open_options *open_options,
                         struct ubtrfs_volume **volume);

/**
 * Opens the volume on all of the given files or devices. Its other devices are searched as set in the options, which
 * may be NULL.
 */
int ubtrfs_volume_open_with(const char *const *images,
                            size_t image_count,
                            const struct ubtrfs_open_options *options,
                            struct ubtrfs_volume **volume);

/**
 * Commits everything and closes the volume. An error means that the last changes are not durable; the handle is freed
 * nevertheless. NULL is allowed.
 *
 * Handles of its subvolumes, files and directories must still be freed. They can still read, and changes and syncs
 * return -EROFS. The file of the volume stays in use until the last of them is freed.
 */
int ubtrfs_volume_close(struct ubtrfs_volume *volume);

/**
 * Writes all buffered data and commits all earlier changes. Returns when they are durable.
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
 * Sets the label, of at most 255 bytes.
 */
int ubtrfs_volume_set_label(const struct ubtrfs_volume *volume, const char *label);

/**
 * Lists all subvolumes by ascending id, the top level first. Deleted subvolumes are listed until their space is free.
 * If the callback ends the list, its result is returned.
 */
int ubtrfs_volume_subvolumes(const struct ubtrfs_volume *volume,
                             ubtrfs_subvolume_callback callback,
                             void *data);

/**
 * Calls `work`, and commits all its changes atomically: after a power cut either all of them exist or none does.
 * Returns when they are durable.
 *
 * Changes by other threads wait for the call, so `work` must not wait for a thread that changes this volume.
 * Operations that commit by themselves fail with -EDQUOT inside `work`: syncs, creation of subvolumes and snapshots,
 * ubtrfs_receive, ubtrfs_send. If `work` returns another value than 0, that is returned. The changes so far are kept
 * then, and become durable with the next commit.
 */
int ubtrfs_volume_group(const struct ubtrfs_volume *volume,
                        ubtrfs_work_callback work,
                        void *data);

/**
 * Reads the space of a volume.
 */
int ubtrfs_volume_space(const struct ubtrfs_volume *volume, struct ubtrfs_space *space);

/**
 * Lists the sizes of block groups, by kind and profile. If the callback ends the list, its result is returned.
 */
int ubtrfs_volume_block_groups(const struct ubtrfs_volume *volume,
                               ubtrfs_block_groups_callback callback,
                               void *data);

/**
 * Lists the devices by ascending id, including missing ones. If the callback ends the list, its result is returned.
 */
int ubtrfs_volume_devices(const struct ubtrfs_volume *volume,
                          ubtrfs_device_callback callback,
                          void *data);

/**
 * Lists the error counters of the devices by ascending id. If the callback ends the list, its result is returned.
 */
int ubtrfs_volume_device_errors(const struct ubtrfs_volume *volume,
                                ubtrfs_device_errors_callback callback,
                                void *data);

/**
 * Discards unused space on the devices, which shrinks an image file. Commits first. Returns the number of discarded
 * bytes. The range begins at the address `start` within the volume and has `len` bytes: 0 and UINT64_MAX are the whole
 * volume. Free extents below `min_bytes` are skipped. Unallocated space has no address, and is always trimmed. The
 * callback may be NULL.
 */
int64_t ubtrfs_volume_trim(const struct ubtrfs_volume *volume,
                           uint64_t start,
                           uint64_t len,
                           uint64_t min_bytes,
                           ubtrfs_progress_callback progress,
                           void *data);

/**
 * Reads the counts since the volume was opened; zeros if it was opened read-only.
 */
int ubtrfs_volume_statistics(const struct ubtrfs_volume *volume,
                             struct ubtrfs_statistics *statistics);

/**
 * Checks a volume that no program writes to. The check only reads. Above single trees it shares no code with the
 * writer. `flags` is 0 or UBTRFS_CHECK_DATA. The callback may be NULL; it receives the first 1000 issues. If it ends
 * the list, its result is returned. A damaged volume is not an error of the function.
 */
int ubtrfs_check(const char *image,
                 unsigned int flags,
                 ubtrfs_issue_callback callback,
                 void *data,
                 struct ubtrfs_check_report *report);

/**
 * Checks the volume on all of the given files or devices, as ubtrfs_check, with options, which may be NULL.
 */
int ubtrfs_check_with(const char *const *images,
                      size_t image_count,
                      const struct ubtrfs_check_options *options,
                      ubtrfs_issue_callback callback,
                      void *data,
                      struct ubtrfs_check_report *report);

/**
 * Opens the top level, the subvolume that contains all others.
 */
int ubtrfs_volume_root(const struct ubtrfs_volume *volume, struct ubtrfs_subvolume **root);

/**
 * Opens the subvolume at a path.
 */
int ubtrfs_subvolume_open(const struct ubtrfs_subvolume *dir,
                          const char *at,
                          struct ubtrfs_subvolume **subvolume);

/**
 * Opens a subvolume by its id. The error is -ENOENT if it does not exist.
 */
int ubtrfs_volume_subvolume_by_id(const struct ubtrfs_volume *volume,
                                  uint64_t id,
                                  struct ubtrfs_subvolume **subvolume);

/**
 * Opens the default subvolume, which mounts use unless another one is named.
 */
int ubtrfs_volume_default_subvolume(const struct ubtrfs_volume *volume,
                                    struct ubtrfs_subvolume **subvolume);

/**
 * Sets the default subvolume, which mounts use unless another one is named.
 */
int ubtrfs_volume_set_default_subvolume(const struct ubtrfs_volume *volume,
                                        const struct ubtrfs_subvolume *subvolume);

/**
 * Runs commits until the space of all deleted subvolumes is free.
 */
int ubtrfs_volume_free_deleted_subvolumes(const struct ubtrfs_volume *volume);

/**
 * Frees a handle. NULL is allowed.
 */
void ubtrfs_subvolume_free(struct ubtrfs_subvolume *subvolume);

/**
 * Returns the id of the subvolume within its volume; 0 for NULL.
 */
uint64_t ubtrfs_subvolume_id(const struct ubtrfs_subvolume *subvolume);

/**
 * Creates an empty subvolume, and commits. `made` may be NULL if no handle is wanted.
 */
int ubtrfs_subvolume_create(const struct ubtrfs_subvolume *dir,
                            const char *at,
                            struct ubtrfs_subvolume **made);

/**
 * Creates a snapshot at `to` of the subvolume at `of`, and commits. "/" is the subvolume itself. The flag
 * UBTRFS_READ_ONLY makes the snapshot read-only. `made` may be NULL if no handle is wanted.
 */
int ubtrfs_subvolume_snapshot(const struct ubtrfs_subvolume *dir,
                              const char *of,
                              const char *to,
                              unsigned int flags,
                              struct ubtrfs_subvolume **made);

/**
 * Deletes a subvolume with all its contents. It must not contain nested subvolumes. Its space is freed in the
 * background.
 */
int ubtrfs_subvolume_delete(const struct ubtrfs_subvolume *dir,
                            const char *at);

/**
 * Makes the subvolume read-only, or writable.
 */
int ubtrfs_subvolume_set_read_only(const struct ubtrfs_subvolume *subvolume, bool read_only);

/**
 * Creates a directory with the permissions in `mode`.
 */
int ubtrfs_mkdir(const struct ubtrfs_subvolume *subvolume, const char *at, uint32_t mode);

/**
 * Creates a directory and its missing parents, with permissions 0755.
 */
int ubtrfs_mkdir_all(const struct ubtrfs_subvolume *subvolume, const char *at);

/**
 * Creates a FIFO, a socket or a device file; `mode` has the file type and the permissions.
 */
int ubtrfs_mknod(const struct ubtrfs_subvolume *subvolume,
                 const char *at,
                 uint32_t mode,
                 uint64_t rdev);

/**
 * Removes the name of a file other than a directory. Symbolic links are not followed.
 */
int ubtrfs_unlink(const struct ubtrfs_subvolume *subvolume, const char *at);

/**
 * Removes an empty directory. An empty subvolume is deleted with it.
 */
int ubtrfs_rmdir(const struct ubtrfs_subvolume *subvolume, const char *at);

/**
 * Removes a directory with all its contents. Symbolic links are not followed. If it contains a subvolume, nothing is
 * removed.
 */
int ubtrfs_remove_all(const struct ubtrfs_subvolume *subvolume,
                      const char *at);

/**
 * Renames a file, and replaces an existing file at `to`. `flags` is 0, UBTRFS_RENAME_NOREPLACE or
 * UBTRFS_RENAME_EXCHANGE.
 */
int ubtrfs_rename(const struct ubtrfs_subvolume *subvolume,
                  const char *from,
                  const char *to,
                  unsigned int flags);

/**
 * Creates a symbolic link to `target`.
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
 * Creates a hard link to a file.
 */
int ubtrfs_link(const struct ubtrfs_subvolume *subvolume, const char *original, const char *link);

/**
 * Makes `to` share the content of `from`, like `cp --reflink`, without copying data.
 */
int ubtrfs_reflink(const struct ubtrfs_subvolume *subvolume, const char *from, const char *to);

/**
 * Reads the attributes of a file. Symbolic links are followed.
 */
int ubtrfs_stat(const struct ubtrfs_subvolume *subvolume, const char *at, struct ubtrfs_stat *stat);

/**
 * Reads the attributes of a file, or of a symbolic link itself.
 */
int ubtrfs_lstat(const struct ubtrfs_subvolume *subvolume,
                 const char *at,
                 struct ubtrfs_stat *stat);

/**
 * Sets the permission bits. Symbolic links are followed.
 */
int ubtrfs_chmod(const struct ubtrfs_subvolume *subvolume, const char *at, uint32_t mode);

/**
 * Sets user and group. UINT32_MAX leaves an id unchanged. `flags` is 0 or UBTRFS_NOFOLLOW.
 */
int ubtrfs_chown(const struct ubtrfs_subvolume *subvolume,
                 const char *at,
                 uint32_t uid,
                 uint32_t gid,
                 unsigned int flags);

/**
 * Sets times. As for utimensat, `nsec` may be UTIME_NOW or UTIME_OMIT of sys/stat.h: the current time, or no change. A
 * NULL time is also left unchanged. `flags` is 0 or UBTRFS_NOFOLLOW.
 */
int ubtrfs_utimens(const struct ubtrfs_subvolume *subvolume,
                   const char *at,
                   const struct ubtrfs_timespec *atime,
                   const struct ubtrfs_timespec *mtime,
                   unsigned int flags);

/**
 * Copies the value of an extended attribute, such as "user.note", and returns its size. `flags` is 0 or
 * UBTRFS_NOFOLLOW. If there is no such attribute the error is -ENODATA.
 */
int64_t ubtrfs_getxattr(const struct ubtrfs_subvolume *subvolume,
                        const char *at,
                        const char *name,
                        void *buf,
                        size_t buf_size,
                        unsigned int flags);

/**
 * Copies the names of all extended attributes, each with a NUL, and returns their size. `flags` is 0 or
 * UBTRFS_NOFOLLOW.
 */
int64_t ubtrfs_listxattr(const struct ubtrfs_subvolume *subvolume,
                         const char *at,
                         void *buf,
                         size_t buf_size,
                         unsigned int flags);

/**
 * Sets an extended attribute. `flags` is 0, UBTRFS_XATTR_CREATE or UBTRFS_XATTR_REPLACE, optionally with
 * UBTRFS_NOFOLLOW.
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
 * Opens a directory for listing.
 */
int ubtrfs_opendir(const struct ubtrfs_subvolume *subvolume,
                   const char *at,
                   struct ubtrfs_dir **dir);

/**
 * Reads the next entry. Returns 1 if there is one, 0 at the end. "." and ".." are not listed.
 */
int ubtrfs_readdir(struct ubtrfs_dir *dir, struct ubtrfs_dirent *entry);

/**
 * Frees a directory. NULL is allowed.
 */
void ubtrfs_closedir(struct ubtrfs_dir *dir);

/**
 * Opens a file, with the flags of open(2): O_RDONLY, O_WRONLY or O_RDWR, and optionally O_APPEND, O_CREAT, O_EXCL,
 * O_NOFOLLOW and O_TRUNC. All optional flags except O_NOFOLLOW need write access, and O_TRUNC excludes O_APPEND. A new
 * file gets the permissions in `mode`.
 */
int ubtrfs_open(const struct ubtrfs_subvolume *subvolume,
                const char *at,
                int flags,
                uint32_t mode,
                struct ubtrfs_file **file);

/**
 * Frees an open file. Written data stays in the volume, which commits it. NULL is allowed.
 */
void ubtrfs_close(struct ubtrfs_file *file);

/**
 * Reads from an offset. Returns the number of bytes read, which is less than `buf_size` only at the end of the file.
 */
int64_t ubtrfs_pread(const struct ubtrfs_file *file,
                     void *buf,
                     size_t buf_size,
                     uint64_t offset);

/**
 * Writes all bytes at an offset, or at the end if the file was opened with O_APPEND. Returns the number of bytes.
 */
int64_t ubtrfs_pwrite(const struct ubtrfs_file *file,
                      const void *data,
                      size_t data_size,
                      uint64_t offset);

/**
 * Truncates the file, or extends it with zeros.
 */
int ubtrfs_truncate(const struct ubtrfs_file *file, uint64_t size_bytes);

/**
 * Makes the file durable: content and attributes, and its name if it is new.
 */
int ubtrfs_fsync(const struct ubtrfs_file *file);

/**
 * Makes the content durable, and only the attributes that reading it needs.
 */
int ubtrfs_fdatasync(const struct ubtrfs_file *file);

/**
 * Reads the attributes of an open file.
 */
int ubtrfs_fstat(const struct ubtrfs_file *file, struct ubtrfs_stat *stat);

/**
 * Reserves space, punches a hole or zeroes a range, like fallocate(2). `mode` is 0, FALLOC_FL_PUNCH_HOLE |
 * FALLOC_FL_KEEP_SIZE, or FALLOC_FL_ZERO_RANGE.
 */
int ubtrfs_fallocate(const struct ubtrfs_file *file,
                     int mode,
                     uint64_t offset,
                     uint64_t size_bytes);

/**
 * Finds data or a hole at or after an offset, like lseek(2). `whence` is SEEK_DATA or SEEK_HOLE. Returns the offset,
 * or -ENXIO if nothing is found.
 */
int64_t ubtrfs_lseek(const struct ubtrfs_file *file,
                     uint64_t offset,
                     int whence);

/**
 * Makes a range of `to` share the data of a range of `from`, without copying. Both ranges must begin at block
 * boundaries, and end at one or at the end of `from`.
 */
int ubtrfs_clone_range(const struct ubtrfs_file *from,
                       uint64_t from_offset,
                       uint64_t size_bytes,
                       const struct ubtrfs_file *to,
                       uint64_t to_offset);

/**
 * Creates options for transfers of trees.
 */
int ubtrfs_transfer_options_new(struct ubtrfs_transfer_options **options);

/**
 * Frees options. NULL is allowed.
 */
void ubtrfs_transfer_options_free(struct ubtrfs_transfer_options *options);

/**
 * Sets an option by its name. Values are texts. An unknown name or an invalid value is -EINVAL, and changes nothing.
 *
 * - "preserve": true or false. Preserves owners, modes, times, extended attributes and hard links, and replaces
 *   existing files. This is the default. With false, copies have the permissions of their originals less the umask. In
 *   a volume they belong to user and group 0. An existing file there is overwritten, and keeps its owner and mode.
 * - "strict_attributes": true or false. Reports each attribute that the destination cannot have as a problem. By
 *   default such attributes are left out, and a warning is logged with their names and numbers.
 * - "reflink": auto, always or never. Sets when copies share the data of their originals. By default they do where
 *   possible.
 * - "sparse": auto, always or never. Sets the treatment of holes. By default they are kept. "always" also turns blocks
 *   of zeros into holes, and "never" fills holes.
 * - "follow": true or false. Copies the target of a symbolic link if the source path is one. Symbolic links below it
 *   are always copied as links.
 * - "contents": true or false. Copies the contents of a directory into an existing directory, which gets the attributes
 *   of the original. The copy fails if either is not a directory, or the destination does not exist.
 * - "umask": an octal number. Sets the permission bits to clear in new files of a volume if modes are not preserved,
 *   like umask(2). The default is 0. Copies on the host use the umask of the process, which is not changed.
 * - "enter_subvolumes": true or false. Removes subvolumes like directories: first their contents, then the empty
 *   subvolume. By default a subvolume counts as a problem.
 */
int ubtrfs_transfer_options_set(struct ubtrfs_transfer_options *options,
                                const char *name,
                                const char *value);

/**
 * Creates options for receiving streams.
 */
int ubtrfs_receive_options_new(struct ubtrfs_receive_options **options);

/**
 * Frees options. NULL is allowed.
 */
void ubtrfs_receive_options_free(struct ubtrfs_receive_options *options);

/**
 * Sets an option by its name. Values are texts. An unknown name or an invalid value is -EINVAL, and changes nothing.
 *
 * - "max_errors": a number. Sets the number of failed commands that end the call. With 0 all commands are tried; the
 *   default is 1.
 * - "force_decompress": true or false. Decompresses data that is compressed in the stream, and stores it like other
 *   data.
 * - "strict_attributes": true or false. Fails at attributes of NAS makers, which no other system has. By default they
 *   are left out, and a warning is logged with their names and numbers.
 * - "all_streams": true or false. Receives all concatenated streams. By default nothing after the first stream is read.
 */
int ubtrfs_receive_options_set(struct ubtrfs_receive_options *options,
                               const char *name,
                               const char *value);

/**
 * Copies a file, or a directory with all its contents, to a path in this or another subvolume, which may belong to
 * another volume. Data is shared within a volume. The options may be NULL. Returns the number of problems: files that
 * could not be copied, or only in part. The progress callback, which may be NULL, receives each problem.
 */
int64_t ubtrfs_copy_tree(const struct ubtrfs_subvolume *subvolume,
                         const char *from,
                         const struct ubtrfs_subvolume *to_subvolume,
                         const char *to,
                         const struct ubtrfs_transfer_options *options,
                         ubtrfs_progress_callback progress,
                         void *data);

/**
 * Copies a file of the host, or a directory with all its contents, into the volume. Symbolic links are copied as
 * links. The options may be NULL. Returns as ubtrfs_copy_tree.
 */
int64_t ubtrfs_copy_from_host(const struct ubtrfs_subvolume *subvolume,
                              const char *host,
                              const char *to,
                              const struct ubtrfs_transfer_options *options,
                              ubtrfs_progress_callback progress,
                              void *data);

/**
 * Copies a file, or a directory with all its contents, to the host. The options may be NULL. Returns as
 * ubtrfs_copy_tree.
 */
int64_t ubtrfs_copy_to_host(const struct ubtrfs_subvolume *subvolume,
                            const char *from,
                            const char *host,
                            const struct ubtrfs_transfer_options *options,
                            ubtrfs_progress_callback progress,
                            void *data);

/**
 * Writes a file, or a directory with all its contents, as a tar archive to a file descriptor. Returns as
 * ubtrfs_copy_tree.
 */
int64_t ubtrfs_export_tar(const struct ubtrfs_subvolume *subvolume,
                          const char *at,
                          int fd,
                          ubtrfs_progress_callback progress,
                          void *data);

/**
 * Unpacks a tar archive, compressed or not, from a file descriptor into a directory. Existing files are replaced. Only
 * the umask of the options, which may be NULL, has an effect. Returns as ubtrfs_copy_tree.
 */
int64_t ubtrfs_import_tar(const struct ubtrfs_subvolume *subvolume,
                          int fd,
                          const char *dir,
                          const struct ubtrfs_transfer_options *options,
                          ubtrfs_progress_callback progress,
                          void *data);

/**
 * Removes a file, or a directory with all its contents, and continues after files that cannot be removed. Symbolic
 * links are not followed. The options, which may be NULL, have the treatment of subvolumes. Returns the number of
 * problems, as ubtrfs_copy_tree. A directory that is not empty afterwards counts as one.
 */
int64_t ubtrfs_remove_tree(const struct ubtrfs_subvolume *subvolume,
                           const char *at,
                           const struct ubtrfs_transfer_options *options,
                           ubtrfs_progress_callback progress,
                           void *data);

/**
 * Writes a read-only subvolume to a file descriptor, as a stream for ubtrfs_receive and btrfs receive. Commits first.
 * The options may be NULL.
 */
int ubtrfs_send(const struct ubtrfs_subvolume *subvolume,
                const struct ubtrfs_send_options *options,
                int fd);

/**
 * Creates the subvolumes of a stream, read from a file descriptor, in a directory. Nothing outside of them is changed,
 * even by a malicious stream. The options and the progress callback may be NULL. The callback receives the name of each
 * subvolume with UBTRFS_EVENT_FINISHED. If it cancels the call, the incomplete subvolume is kept, and is writable.
 */
int ubtrfs_receive(const struct ubtrfs_subvolume *subvolume,
                   const char *dir,
                   int fd,
                   const struct ubtrfs_receive_options *options,
                   ubtrfs_progress_callback progress,
                   void *data);

/**
 * Lists the changes from one read-only subvolume to another, in the order of paths. Commits first. If the callback
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
