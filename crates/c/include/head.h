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
