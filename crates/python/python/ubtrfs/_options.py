"""The options of `Volume.open`, of new volumes, of copies, of receiving and of checks.

Generated from the tables of the library by `cargo xtask header`.
"""

import os
import uuid as _uuid
from typing import Iterable, Optional, Tuple, TypedDict, Union


class OpenOptions(TypedDict, total=False):
    """The options for opening a volume. None selects a default, but a `commit_interval` of None means no interval.

    - `read_only`: Opens the volume read-only. Other processes may also open it read-only. Default: false.
    - `as_committed`: Opens the volume read-only, as of the last commit: later fsyncs are ignored. Use this to read a
      volume whose log of such fsyncs is damaged. Default: false.
    - `degraded`: Opens the volume although devices are missing, as far as the profiles allow. Default: false.
    - `scan`: Sets the places to search for the volume's other devices: files, folders (for the files directly in them)
      or `/dev` (for all block devices). Without one, only the named devices are opened. Default: no path.
    - `volume`: Chooses the volume if the disks hold several: its UUID or label, or the name of its array or LVM volume.
      Only for volumes on partitions, md arrays and LVM volumes, which are only read. Default: none.
    - `memory_bytes`: Limits all caches and buffers to their shares of this number of bytes of memory. Default: no
      limit.
    - `cache_bytes`: Sets the size of the cache of tree blocks, in bytes. Default: 256m.
    - `decompressed_bytes`: Sets the size of the cache of decompressed extents, in bytes. Default: 32m.
    - `delta_bytes`: Sets the memory limit for the changes of one transaction, in bytes. Operations wait if a
      transaction uses it up while the previous one is being committed. Default: 128m.
    - `buffer_bytes`: Sets the memory limit for buffered data, in bytes. A write beyond it first writes data back.
      Default: 64m.
    - `commit_interval`: Sets the longest time that a change stays uncommitted. Without one, the caller's thread
      commits, only on request and under memory pressure. Default: 30.
    - `lazy_times`: Keeps pure time changes in memory until the file changes otherwise or is synced, for at most a day.
      A crash may lose them. Default: false.
    - `fsync_log`: Writes a log in place of a commit to sync a single file or directory, if the log can represent the
      changes. Default: true.
    - `flush_on_commit`: Writes back the data of all files when one file is synced. Default: false.
    - `barriers`: Flushes the caches of devices in each commit and sync. If disabled, a crash of the machine can destroy
      the volume; a crash of the program cannot. For images that are rebuilt after a crash. Default: true.
    - `clear_free_space_tree`: Distrusts the free-space tree, and rebuilds it in the first commit that has room for it.
      The volume commits even if nothing else changes. Only for writing; no effect on a volume without such a tree.
      Default: false.
    - `free_space_tree`: Adds a free-space tree to a volume without one, and drops its free-space caches, like the
      kernel's mount option `space_cache=v2`. Only for writing. Default: false.
    - `acls`: Enables POSIX ACLs. If disabled, new files get no ACL, and stored ACLs are ignored but kept. Default:
      true.
    - `compress`: Sets the compression of files without a flag or property of their own. Also applies to the initial
      contents of a new volume. Default: none.
    - `max_inline_bytes`: Sets the size of the largest inline file, in bytes; 0 disables inline files. The limit is the
      room in a leaf and, unless the file is compressed, less than a sector. Default: 2k.
    - `no_data_cow`: Overwrites new files in place, without checksums and compression, like `-o nodatacow`. Default:
      false.
    - `no_data_sum`: Stores new files without checksums, like `-o nodatasum`: corruption is then not detected. Default:
      false.
    - `discard`: Sets when freed space is discarded in the file or on the device. By default that is in the background
      and when the volume is closed, if a device supports discards. A trim discards at any time. Default: true.
    """

    read_only: bool
    as_committed: bool
    degraded: bool
    scan: Iterable[Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]]
    volume: Optional[str]
    memory_bytes: Optional[int]
    cache_bytes: Optional[int]
    decompressed_bytes: Optional[int]
    delta_bytes: Optional[int]
    buffer_bytes: Optional[int]
    commit_interval: Optional[float]
    lazy_times: bool
    fsync_log: bool
    flush_on_commit: bool
    barriers: bool
    clear_free_space_tree: bool
    free_space_tree: bool
    acls: bool
    compress: Optional[str]
    max_inline_bytes: Optional[int]
    no_data_cow: bool
    no_data_sum: bool
    discard: Union[bool, str]


class MkfsOptions(TypedDict, total=False):
    """The options of a new volume. None selects a default.

    - `label`: Sets the label, of at most 255 bytes.
    - `uuid`: Sets the UUID of the volume, which must be unique. The default is a random UUID.
    - `data`: Sets the profile of data. The default depends on the number of devices.
    - `metadata`: Sets the profile of metadata. The default depends on the number of devices.
    - `checksum`: Sets the checksum algorithm. The default is crc32c.
    - `node_size`: Sets the size of a tree block. The default is 16 KiB.
    - `sector_size`: Sets the size of a data block. The default is 4 KiB.
    - `features`: Sets and clears features: "^no-holes,mixed-bg" clears the first and sets the second.
    - `rootdir`: Fills the volume with the contents of a folder of the host, or of a tar archive, compressed or not.
    - `source_date_epoch`: Uses this time as the current time: then the same options and files produce the same volume,
      byte for byte. No file has a later time. An empty volume also needs a UUID for that.
    - `subvolumes`: Turns a directory of the initial contents into a subvolume. The path is relative to the contents.
    - `read_only_subvolumes`: Turns a directory of the initial contents into a read-only subvolume.
    - `owner`: Sets the owner of all initial files. The default is their own.
    - `root_owner`: Sets the owner of the root directory of a volume without initial contents. The default is 0:0.
    - `dense`: Writes out the holes of an initial file, or of all files in a directory, as zeros.
    - `reflink`: Makes an image share blocks with the initial files, if both are on a file system that supports this.
    - `growth`: Sets whether images may grow to hold the initial contents. The default is never.
    - `shrink`: Truncates a filled volume to the minimum size at which it is still writable.
    - `scratch_dir`: Sets the folder for temporary files while a volume is filled.
    - `discard_before`: Discards the contents of devices before creating a volume on them, as mkfs.btrfs does. The
      default is false.
    """

    label: Optional[str]
    uuid: Optional[_uuid.UUID]
    data: Optional[str]
    metadata: Optional[str]
    checksum: Optional[str]
    node_size: Optional[int]
    sector_size: Optional[int]
    features: Optional[str]
    rootdir: Optional[Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]]
    source_date_epoch: Optional[int]
    subvolumes: Iterable[Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]]
    read_only_subvolumes: Iterable[Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]]
    owner: Optional[Tuple[int, int]]
    root_owner: Optional[Tuple[int, int]]
    dense: Iterable[Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]]
    reflink: bool
    growth: Optional[str]
    shrink: bool
    scratch_dir: Optional[Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]]
    discard_before: bool


class CopyOptions(TypedDict, total=False):
    """The options of copies. None selects a default.

    - `preserve`: Preserves owners, modes, times, extended attributes and hard links, and replaces existing files. This
      is the default. With false, copies have the permissions of their originals less the umask. In a volume they belong
      to user and group 0. An existing file there is overwritten, and keeps its owner and mode.
    - `strict_attributes`: Reports each attribute that the destination cannot have as a problem. By default such
      attributes are left out, and a warning is logged with their names and numbers.
    - `reflink`: Sets when copies share the data of their originals. By default they do where possible.
    - `sparse`: Sets the treatment of holes. By default they are kept. "always" also turns blocks of zeros into holes,
      and "never" fills holes.
    - `follow`: Copies the target of a symbolic link if the source path is one. Symbolic links below it are always
      copied as links.
    - `contents`: Copies the contents of a directory into an existing directory, which gets the attributes of the
      original. The copy fails if either is not a directory, or the destination does not exist.
    - `umask`: Sets the permission bits to clear in new files of a volume if modes are not preserved, like umask(2). The
      default is 0. Copies on the host use the umask of the process, which is not changed.
    """

    preserve: bool
    strict_attributes: bool
    reflink: Optional[str]
    sparse: Optional[str]
    follow: bool
    contents: bool
    umask: Optional[int]


class ReceiveOptions(TypedDict, total=False):
    """The options of receiving. None selects a default.

    - `max_errors`: Sets the number of failed commands that end the call. With 0 all commands are tried; the default is
      1.
    - `force_decompress`: Decompresses data that is compressed in the stream, and stores it like other data.
    - `strict_attributes`: Fails at attributes of NAS makers, which no other system has. By default they are left out,
      and a warning is logged with their names and numbers.
    - `all_streams`: Receives all concatenated streams. By default nothing after the first stream is read.
    """

    max_errors: Optional[int]
    force_decompress: bool
    strict_attributes: bool
    all_streams: bool


class CheckOptions(TypedDict, total=False):
    """The options of checks. None selects a default.

    - `read_data`: Also reads all data of every mirror, and verifies its checksums.
    - `degraded`: Checks the volume although devices are missing. Each missing device is a warning then, instead of an
      error.
    - `memory_bytes`: Sets the memory limit of buffers and caches, in bytes. Further records go to a temporary file. The
      default is 256 MiB, or a third of the memory that the process may use if that is less.
    - `max_issues`: Sets the maximum number of listed issues; 1000 by default. All issues are counted.
    - `superblock_copy`: Uses the trees of this copy of the superblock: 0, 1 or 2. The default is the newest.
    - `backup_root`: Uses the trees of the newest readable backup root, if possible of an earlier transaction.
    - `tree_root`: Uses the root tree at this logical address.
    - `chunk_root`: Uses the chunk tree at this logical address.
    """

    read_data: bool
    degraded: bool
    memory_bytes: Optional[int]
    max_issues: Optional[int]
    superblock_copy: Optional[int]
    backup_root: bool
    tree_root: Optional[int]
    chunk_root: Optional[int]
