//! Arrays drawn by hand, after the descriptions of layouts in md(4). No map of a program is involved.
//!
//! A row of a drawing has one chunk of each member: `a` is the first data chunk of the array, `P` and `Q` are parity.
//! P is the sum of the data chunks of its row. Q is the sum of the data chunks times powers of 2 in GF(2^8). The first
//! power belongs to the first data chunk after Q in the order of members, which continue with the first one.

use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_assemble::{Assembly, Disk};
use ubtrfs_device::MemDevice;
use ubtrfs_sim::MdArray;

const CHUNK: usize = 4096;

/// Returns the bytes of a data chunk. No two chunks are equal.
fn data(letter: u8) -> Vec<u8> {
    let bytes = (0..CHUNK).map(|at| letter.wrapping_mul(7) ^ (at as u8).wrapping_mul(letter | 1));
    bytes.collect()
}

/// Multiplies by 2 in the field with the polynomial 0x11d.
fn twice(byte: u8) -> u8 {
    byte << 1 ^ if byte & 0x80 != 0 { 0x1d } else { 0 }
}

/// Returns the chunks of a row.
fn row(drawn: &[u8]) -> Vec<Vec<u8>> {
    let is_parity = |letter: u8| letter == b'P' || letter == b'Q';
    let (mut p, mut q) = (vec![0; CHUNK], vec![0; CHUNK]);
    let after_q = drawn.iter().position(|&letter| letter == b'Q');
    let first = after_q.map_or(0, |at| at + 1);
    let mut power = 0;
    for step in 0..drawn.len() {
        let letter = drawn[(first + step) % drawn.len()];
        if is_parity(letter) {
            continue;
        }
        for (at, byte) in data(letter).into_iter().enumerate() {
            p[at] ^= byte;
            q[at] ^= (0..power).fold(byte, |product, _| twice(product));
        }
        power += 1;
    }
    let chunk = |&letter: &u8| match letter {
        b'P' => p.clone(),
        b'Q' => q.clone(),
        letter => data(letter),
    };
    drawn.iter().map(chunk).collect()
}

/// Checks an array with each set of members missing, up to a number of them.
#[track_caller]
fn check(level: i32, layout: u32, missing: usize, drawing: &str) {
    let rows: Vec<&[u8]> = drawing.split_whitespace().map(str::as_bytes).collect();
    let count = rows[0].len();
    let mut members = vec![Vec::new(); count];
    for drawn in &rows {
        for (member, chunk) in members.iter_mut().zip(row(drawn)) {
            member.extend(chunk);
        }
    }
    let mut letters: Vec<u8> = rows.concat();
    letters.retain(u8::is_ascii_lowercase);
    letters.sort_unstable();
    letters.dedup();
    let content: Vec<u8> = letters.iter().flat_map(|&letter| data(letter)).collect();
    let array = MdArray {
        chunk_bytes: CHUNK as u64,
        ..MdArray::new(level, layout, count)
    };
    let members = array.members_with(members);
    for lost in 0_u32..1 << count {
        if lost.count_ones() as usize > missing {
            continue;
        }
        let present = (0..count).filter(|member| lost & 1 << member == 0);
        let disks = present.map(|member| Disk {
            path: PathBuf::from(format!("disk{member}")),
            device: Arc::new(MemDevice::from_bytes(&members[member])),
        });
        let assembly = Assembly::of(disks);
        let layer = assembly.layers().last().expect("an array");
        let device = layer.device().unwrap_or_else(|| panic!("{layer:?}"));
        assert_eq!(layer.len_bytes, content.len() as u64);
        let mut bytes = vec![0; content.len()];
        device.read_at(&mut bytes, 0).expect("readable");
        assert!(bytes == content, "layout {layout:#x}, without {lost:b}");
    }
}

#[test]
fn raid4_and_raid5() {
    check(4, 0, 1, "abcP defP");
    // Left: parity moves from the last member to the first. Asymmetric: data begins at the first member.
    check(5, 0, 1, "abcP dePf gPhi Pjkl mnoP");
    check(5, 1, 1, "Pabc dPef ghPi jklP Pmno");
    // Symmetric: data begins after parity, and continues with the first member.
    check(5, 2, 1, "abcP efPd iPgh Pjkl mnoP");
    check(5, 3, 1, "Pabc fPde hiPg jklP Pmno");
    // Parity first, and last.
    check(5, 4, 1, "Pabc Pdef");
    check(5, 5, 1, "abcP defP");
}

#[test]
fn raid6() {
    // Q is on the member after P. If P is on the last one, it is on the first.
    check(6, 0, 2, "QabcP defPQ ghPQi jPQkl PQmno QpqrP");
    check(6, 1, 2, "PQabc dPQef ghPQi jklPQ QmnoP PQpqr");
    check(6, 2, 2, "QabcP defPQ hiPQg lPQjk PQmno QpqrP");
    check(6, 3, 2, "PQabc fPQde hiPQg jklPQ QmnoP PQpqr");
    check(6, 4, 2, "PQabc PQdef");
    check(6, 5, 2, "abcPQ defPQ");
}

/// Layouts during and after a change from RAID5: Q is on the last member, and the others are as before.
#[test]
fn raid6_that_was_raid5() {
    check(6, 16, 2, "abcPQ dePfQ gPhiQ PjklQ mnoPQ");
    check(6, 17, 2, "PabcQ dPefQ ghPiQ jklPQ PmnoQ");
    check(6, 18, 2, "abcPQ efPdQ iPghQ PjklQ mnoPQ");
    check(6, 19, 2, "PabcQ fPdeQ hiPgQ jklPQ PmnoQ");
    check(6, 20, 2, "PabcQ PdefQ");
}

#[test]
fn raid10_near() {
    check(10, 0x102, 1, "aabb ccdd");
    // Copies of a chunk may be in two rows.
    check(10, 0x102, 1, "aab bcc");
    check(10, 0x103, 2, "aaab bbcc cddd");
}

#[test]
fn raid10_far() {
    // The second half of each member has the chunks of the member before it.
    check(10, 0x201, 1, "abcd efgh dabc hefg");
    check(10, 0x201, 1, "abc def cab fde");
    // Near copies as well: the far ones are two members further.
    check(10, 0x202, 1, "aabb ccdd bbaa ddcc");
    // Within sets of two members.
    check(10, 1 << 17 | 0x201, 1, "abcd efgh badc fehg");
    check(10, 2 << 17 | 0x201, 1, "abcd efgh badc fehg");
}

#[test]
fn raid10_offset() {
    const OFFSET: u32 = 1 << 16;
    // Each row of chunks is followed by its copies, one member further.
    check(10, OFFSET | 0x201, 1, "abcd dabc efgh hefg");
    check(10, OFFSET | 0x201, 1, "abc cab def fde");
}
