//! The command as a process, compared with the kernel's mount, btrfs-progs and GNU tar.

mod access_times;
mod as_btrfs;
mod block_devices;
mod by_ioctls;
mod callers;
mod check;
mod coherent;
mod copies;
mod copies_in;
mod copies_onto;
mod crafted;
mod diffs;
mod edits;
mod errors;
mod foreign;
mod held;
mod imports;
mod inspected;
mod kept_images;
mod listings;
mod live;
mod logs;
mod mapped;
mod mounted;
mod namespace_copies;
mod namespaces;
mod other_namespace;
mod process;
mod progs_verbs;
mod shell;
mod siblings;
mod stopped;
mod stored;
mod subvolumes;
#[path = "../../../../benches/transport/src/switch.rs"]
mod switch;
