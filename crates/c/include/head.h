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
