//! Ioctls without a library function.
//!
//! Source: the kernel's uapi `linux/btrfs.h` and `linux/fs.h`.

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;
use rustix::ioctl::{Opcode, opcode};

use super::Received;
use crate::manifest::Time;
use crate::raw_ioctl::raw_ioctl as ask;

const BTRFS: u8 = 0x94;
const PLACE_BYTES: usize = 4096;
const SUBVOL_CREATE: Opcode = opcode::write::<[u8; PLACE_BYTES]>(BTRFS, 14);
const SNAP_DESTROY: Opcode = opcode::write::<[u8; PLACE_BYTES]>(BTRFS, 15);
const SNAP_CREATE_V2: Opcode = opcode::write::<[u8; PLACE_BYTES]>(BTRFS, 23);
const INO_LOOKUP_BYTES: usize = 4096;
const INO_LOOKUP: Opcode = opcode::read_write::<[u8; INO_LOOKUP_BYTES]>(BTRFS, 18);
const DEFAULT_SUBVOL: Opcode = opcode::write::<u64>(BTRFS, 19);
const SUBVOL_SETFLAGS: Opcode = opcode::write::<u64>(BTRFS, 26);
const RECEIVED_BYTES: usize = 200;
const SET_RECEIVED: Opcode = opcode::read_write::<[u8; RECEIVED_BYTES]>(BTRFS, 37);
const INFO_BYTES: usize = 504;
const SUBVOL_INFO: Opcode = opcode::read::<[u8; INFO_BYTES]>(BTRFS, 60);
const DEDUPE_HEAD_BYTES: usize = 24;
const DEDUPE: Opcode = opcode::read_write::<[u8; DEDUPE_HEAD_BYTES]>(BTRFS, 54);

const READ_ONLY: u64 = 1 << 1;
const ROOT_DIR: u64 = 256;

fn put(argument: &mut [u8], at: usize, bytes: &[u8]) {
    argument[at..at + bytes.len()].copy_from_slice(bytes);
}

fn field<const LEN: usize>(argument: &[u8], at: usize) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes.copy_from_slice(&argument[at..at + LEN]);
    bytes
}

fn descriptor(file: impl AsFd) -> [u8; 8] {
    i64::from(file.as_fd().as_raw_fd()).to_ne_bytes()
}

pub(super) fn create_subvolume(dir: impl AsFd, name: &[u8]) -> Result<(), Errno> {
    let mut argument = [0; PLACE_BYTES];
    put(&mut argument, 8, name);
    ask(dir, SUBVOL_CREATE, &mut argument)
}

pub(super) fn delete_subvolume(dir: impl AsFd, name: &[u8]) -> Result<(), Errno> {
    let mut argument = [0; PLACE_BYTES];
    put(&mut argument, 8, name);
    ask(dir, SNAP_DESTROY, &mut argument)
}

pub(super) fn snapshot(
    of: impl AsFd,
    dir: impl AsFd,
    name: &[u8],
    read_only: bool,
) -> Result<(), Errno> {
    let flags = if read_only { READ_ONLY } else { 0 };
    let mut argument = [0; PLACE_BYTES];
    put(&mut argument, 0, &descriptor(of));
    put(&mut argument, 16, &flags.to_ne_bytes());
    put(&mut argument, 56, name);
    ask(dir, SNAP_CREATE_V2, &mut argument)
}

/// Returns the id of the subvolume that contains an open directory.
fn subvolume_of(dir: impl AsFd) -> Result<u64, Errno> {
    let mut argument = [0; INO_LOOKUP_BYTES];
    put(&mut argument, 8, &ROOT_DIR.to_ne_bytes());
    ask(dir, INO_LOOKUP, &mut argument)?;
    Ok(u64::from_ne_bytes(field(&argument, 0)))
}

pub(super) fn set_default(dir: impl AsFd + Copy) -> Result<(), Errno> {
    let mut id = subvolume_of(dir)?.to_ne_bytes();
    ask(dir, DEFAULT_SUBVOL, &mut id)
}

pub(super) fn set_read_only(dir: impl AsFd, read_only: bool) -> Result<(), Errno> {
    let flags = if read_only { READ_ONLY } else { 0 };
    ask(dir, SUBVOL_SETFLAGS, &mut flags.to_ne_bytes())
}

pub(super) fn set_received(dir: impl AsFd, received: &Received) -> Result<(), Errno> {
    let mut argument = [0; RECEIVED_BYTES];
    put(&mut argument, 0, &received.uuid);
    put(&mut argument, 16, &received.transid.to_ne_bytes());
    put(&mut argument, 32, &received.time.seconds.to_ne_bytes());
    put(&mut argument, 40, &received.time.nanoseconds.to_ne_bytes());
    ask(dir, SET_RECEIVED, &mut argument)
}

pub(super) fn received(dir: impl AsFd) -> Result<Received, Errno> {
    let mut argument = [0; INFO_BYTES];
    ask(dir, SUBVOL_INFO, &mut argument)?;
    Ok(Received {
        uuid: field(&argument, 328),
        transid: u64::from_ne_bytes(field(&argument, 360)),
        time: Time {
            seconds: i64::from_ne_bytes(field(&argument, 408)),
            nanoseconds: u32::from_ne_bytes(field(&argument, 416)),
        },
    })
}

/// Returns whether the ranges were equal.
pub(super) fn dedupe(
    (from, from_offset): (impl AsFd, u64),
    len_bytes: u64,
    (to, to_offset): (impl AsFd, u64),
) -> Result<bool, Errno> {
    const DIFFERS: i32 = 1;
    const STATUS: usize = DEDUPE_HEAD_BYTES + 24;
    let mut argument = [0; DEDUPE_HEAD_BYTES + 32];
    put(&mut argument, 0, &from_offset.to_ne_bytes());
    put(&mut argument, 8, &len_bytes.to_ne_bytes());
    put(&mut argument, 16, &1_u16.to_ne_bytes());
    put(&mut argument, 24, &descriptor(to));
    put(&mut argument, 32, &to_offset.to_ne_bytes());
    ask(from, DEDUPE, &mut argument)?;
    match i32::from_ne_bytes(field(&argument, STATUS)) {
        0 => Ok(true),
        DIFFERS => Ok(false),
        status => Err(Errno::from_raw_os_error(-status)),
    }
}
