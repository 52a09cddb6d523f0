//! The ioctls of btrfs as programs call them, and the parts of their answers that are equal on two volumes.

use std::fs::File;

use rustix::io::Errno;
use rustix::ioctl::{Opcode, opcode};
use ubtrfs_sim::{ioctl_bytes, raw_ioctl};

pub(crate) fn ask(file: &File, command: Opcode, input: &[u8]) -> Result<Vec<u8>, Errno> {
    let mut argument = input.to_vec();
    argument.resize(ioctl_bytes(command).max(1), 0);
    raw_ioctl(file, command, &mut argument).map(|()| argument)
}

/// Returns the outcome of a call and the answer buffer after it, even after an error.
pub(crate) fn ask_for_all(
    file: &File,
    command: Opcode,
    input: &[u8],
) -> (Result<(), Errno>, Vec<u8>) {
    let mut argument = input.to_vec();
    argument.resize(4096, 0);
    let asked = raw_ioctl(file, command, &mut argument);
    (asked, argument)
}

const BTRFS: u8 = 0x94;
pub(crate) const SNAP_CREATE: Opcode = opcode::write::<[u8; 4096]>(BTRFS, 1);
pub(crate) const SNAP_CREATE_V2: Opcode = opcode::write::<[u8; 4096]>(BTRFS, 23);
pub(crate) const SUBVOL_CREATE: Opcode = opcode::write::<[u8; 4096]>(BTRFS, 14);
pub(crate) const SUBVOL_CREATE_V2: Opcode = opcode::write::<[u8; 4096]>(BTRFS, 24);
pub(crate) const SNAP_DESTROY: Opcode = opcode::write::<[u8; 4096]>(BTRFS, 15);
pub(crate) const SNAP_DESTROY_V2: Opcode = opcode::write::<[u8; 4096]>(BTRFS, 63);
pub(crate) const GETFLAGS: Opcode = opcode::read::<u64>(BTRFS, 25);
pub(crate) const SETFLAGS: Opcode = opcode::write::<u64>(BTRFS, 26);
pub(crate) const DEFAULT_SUBVOL: Opcode = opcode::write::<u64>(BTRFS, 19);
pub(crate) const INO_LOOKUP: Opcode = opcode::read_write::<[u8; 4096]>(BTRFS, 18);
pub(crate) const INO_LOOKUP_USER: Opcode = opcode::read_write::<[u8; 4096]>(BTRFS, 62);
pub(crate) const GET_SUBVOL_ROOTREF: Opcode = opcode::read_write::<[u8; 4096]>(BTRFS, 61);
pub(crate) const GET_SUBVOL_INFO: Opcode = opcode::read::<[u8; 504]>(BTRFS, 60);
pub(crate) const FS_INFO: Opcode = opcode::read::<[u8; 1024]>(BTRFS, 31);
pub(crate) const DEV_INFO: Opcode = opcode::read_write::<[u8; 4096]>(BTRFS, 30);
pub(crate) const SPACE_INFO: Opcode = opcode::read_write::<[u8; 16]>(BTRFS, 20);
pub(crate) const SYNC: Opcode = opcode::none(BTRFS, 8);
pub(crate) const START_SYNC: Opcode = opcode::read::<u64>(BTRFS, 24);
pub(crate) const WAIT_SYNC: Opcode = opcode::write::<u64>(BTRFS, 22);
pub(crate) const GET_FSLABEL: Opcode = opcode::read::<[u8; 256]>(BTRFS, 49);
pub(crate) const SET_FSLABEL: Opcode = opcode::write::<[u8; 256]>(BTRFS, 50);
pub(crate) const SET_RECEIVED: Opcode = opcode::read_write::<[u8; 200]>(BTRFS, 37);
pub(crate) const TREE_SEARCH: Opcode = opcode::read_write::<[u8; 4096]>(BTRFS, 17);
pub(crate) const GET_FEATURES: Opcode = opcode::read::<[u8; 24]>(BTRFS, 57);
pub(crate) const GET_SUPPORTED_FEATURES: Opcode = opcode::read::<[u8; 72]>(BTRFS, 57);
pub(crate) const FITRIM: Opcode = opcode::read_write::<[u8; 24]>(b'X', 121);

pub(crate) const READ_ONLY: u64 = 1 << 1;
pub(crate) const BY_ID: u64 = 1 << 4;

pub(crate) fn named(name: &[u8]) -> Vec<u8> {
    [&[0; 8], name].concat()
}

pub(crate) fn named_from(descriptor: i32, name: &[u8]) -> Vec<u8> {
    [&i64::from(descriptor).to_ne_bytes(), name].concat()
}

pub(crate) fn named_v2(descriptor: i64, flags: u64, name: &[u8]) -> Vec<u8> {
    let head = [descriptor as u64, 0, flags, 0, 0, 0, 0];
    [&numbers(&head), name].concat()
}

pub(crate) fn numbers(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_ne_bytes()).collect()
}

/// Creates the arguments of a search: tree, first and last key, each in the order of objectid, type and offset.
pub(crate) fn search(tree: u64, from: (u64, u32, u64), to: (u64, u32, u64)) -> Vec<u8> {
    let mut key = numbers(&[tree, from.0, to.0, from.2, to.2, 0, u64::MAX]);
    for number in [from.1, to.1, 4096] {
        key.extend(number.to_ne_bytes());
    }
    key
}

/// Creates the arguments of FS_INFO with the flags of all optional fields.
pub(crate) fn fs_info_of_all() -> Vec<u8> {
    numbers(&[0, 0, 0, 0, 0, 0, 7])
}

/// Clears the number of the last commit in an answer to FS_INFO.
pub(crate) fn without_generation(mut info: Vec<u8>) -> Vec<u8> {
    info[FS_INFO_GENERATION..][..8].fill(0);
    info
}

const FS_INFO_GENERATION: usize = 56;

fn without_zeros(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|&byte| byte != 0);
    &bytes[..end.map_or(0, |last| last + 1)]
}

/// Returns an answer whose text begins at this byte, without the kernel's leftovers after the text.
pub(crate) fn text_at(at: usize, mut answer: Vec<u8>) -> Vec<u8> {
    let end = answer[at..].iter().position(|&byte| byte == 0);
    answer.truncate(at + end.unwrap_or(0));
    answer
}

/// Returns the items found, without their contents and the times when they were written.
pub(crate) fn found(answer: &[u8]) -> Vec<Vec<u8>> {
    let number = |at: usize| u32::from_ne_bytes(*answer[at..].first_chunk().unwrap());
    let mut at = 104;
    (0..number(64))
        .map(|_| {
            let header = answer[at + 8..at + 32].to_vec();
            at += 32 + number(at + 28) as usize;
            header
        })
        .collect()
}

pub(crate) fn silent(answer: Result<Vec<u8>, Errno>) -> Result<Vec<u8>, Errno> {
    answer.map(|_| Vec::new())
}

/// The requests and their answers.
#[derive(Default)]
pub(crate) struct Answers(pub(crate) Vec<String>);

impl Answers {
    pub(crate) fn note(&mut self, what: &str, answer: Result<Vec<u8>, Errno>) {
        let answer = match answer {
            Ok(bytes) => without_zeros(&bytes).escape_ascii().to_string(),
            Err(errno) => format!("{errno:?}"),
        };
        self.0.push(format!("{what}: {answer}"));
    }
}

pub(crate) fn assert_same(ours: &[String], kernels: &[String]) {
    let both = ours.iter().zip(kernels);
    let differing: Vec<_> = both.filter(|(ours, theirs)| ours != theirs).collect();
    assert!(
        differing.is_empty(),
        "ours and the kernel's: {differing:#?}"
    );
    assert_eq!(ours.len(), kernels.len());
}
