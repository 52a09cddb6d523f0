//! Arrays with a journal, a partial parity log or a bitmap.

use ubtrfs_format::csum::CsumType;
use ubtrfs_sim::MdArray;

use super::tests::{KIB, assemble, check, content, top};
use super::*;
use crate::md::problem::{ArrayNote, ArrayProblem};

const JOURNAL: u8 = 2;
const PPL: u8 = 4;
/// The place of a log on a device, and its sector in a journal.
const TAIL: usize = 16;

fn crc32c(bytes: &[u8]) -> u32 {
    let csum = CsumType::Crc32c.compute(bytes);
    u32::from_le_bytes(csum.as_bytes()[..4].try_into().expect("4 bytes"))
}

fn array() -> MdArray {
    MdArray::new(5, 2, 3)
}

/// Returns a block of a journal with this number of bytes of payload descriptions.
fn journal_block(seq: u64, position: u64, payload: u32) -> Vec<u8> {
    let mut block = vec![0; 4096];
    block[..4].copy_from_slice(&0x6433_c509_u32.to_le_bytes());
    block[8] = 1;
    block[12..16].copy_from_slice(&(32 + payload).to_le_bytes());
    block[16..24].copy_from_slice(&seq.to_le_bytes());
    block[24..32].copy_from_slice(&position.to_le_bytes());
    // The UUID of the array is before the block.
    let sum = !crc32c(&[&[1; 16][..], &block].concat());
    block[4..8].copy_from_slice(&sum.to_le_bytes());
    block
}

/// Returns the members of an array, and its journal with some blocks from its tail on.
fn with_journal(content: &[u8], blocks: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let array = array();
    let mut disks = array.write(content);
    disks.push(disks[0].clone());
    for (number, disk) in disks.iter_mut().enumerate() {
        array.edit(disk, |sb| {
            sb[9] |= JOURNAL;
            sb[256 + 6..256 + 8].copy_from_slice(&[0xfd, 0xff]);
            if number == 3 {
                sb[152] = TAIL as u8;
                sb[160] = 3;
            }
        });
    }
    let start = array.data_range(&disks[3]).start;
    disks[3][start..].fill(0);
    for (number, block) in blocks.iter().enumerate() {
        let at = start + TAIL * 512 + number * 4096;
        disks[3][at..at + 4096].copy_from_slice(block);
    }
    disks
}

fn problem(disks: &[Vec<u8>]) -> Option<Problem> {
    let assembly = assemble(disks);
    assembly.layer(top(&assembly, "md")).problem.clone()
}

#[test]
fn array_with_an_empty_journal_is_read() {
    let content = content(600 * KIB);
    let tail = TAIL as u64;
    // A block of an earlier round follows.
    let blocks = [journal_block(7, tail, 0), journal_block(3, tail + 8, 64)];
    for count in [1, 2] {
        let mut disks = with_journal(&content, &blocks[..count]);
        for lost in [3, 0, 2] {
            let assembly = assemble(&disks);
            let layer = assembly.layer(top(&assembly, "md"));
            check(layer, &content);
            let left_out = Component::LeftOut(LayerId(3), LeftOut::Journal);
            assert!(lost != 3 || layer.components.contains(&left_out));
            if lost == 0 {
                disks[lost].clear();
            }
        }
    }
}

#[test]
fn array_with_entries_in_its_journal_is_refused() {
    let content = content(300 * KIB);
    let tail = TAIL as u64;
    let used = Some(Problem::Array(ArrayProblem::Journal));
    let other_array = {
        let mut block = journal_block(7, tail, 0);
        block[4] ^= 1;
        block
    };
    for blocks in [
        vec![journal_block(7, tail, 32)],
        vec![journal_block(7, tail, 0), journal_block(8, tail + 8, 32)],
        vec![journal_block(7, tail + 8, 0)],
        vec![other_array],
        vec![],
    ] {
        assert_eq!(
            problem(&with_journal(&content, &blocks)),
            used,
            "{blocks:?}"
        );
    }
    let missing = Some(Problem::Array(ArrayProblem::JournalMissing));
    let empty = [journal_block(7, tail, 0)];
    let mut disks = with_journal(&content, &empty);
    disks[3].clear();
    assert_eq!(problem(&disks), missing);
    // A journal that was replaced.
    let mut disks = with_journal(&content, &empty);
    array().edit(&mut disks[3], |sb| sb[200] = 12);
    assert_eq!(problem(&disks), missing);
    // A tail outside of the journal.
    let mut disks = with_journal(&content, &empty);
    array().edit(&mut disks[3], |sb| sb[158] = 1);
    assert_eq!(problem(&disks), used);
}

/// Returns members whose logs have these numbers of entries. The array was not stopped.
fn with_ppl(content: &[u8], entries: [u32; 3]) -> Vec<Vec<u8>> {
    let array = array();
    let mut disks = array.write(content);
    for (disk, entries) in disks.iter_mut().zip(entries) {
        array.edit(disk, |sb| {
            sb[9] |= PPL;
            sb[96..98].copy_from_slice(&24_i16.to_le_bytes());
            sb[98..100].copy_from_slice(&8_u16.to_le_bytes());
            sb[208..216].fill(0);
        });
        let mut header = vec![0; 4096];
        header[..512].fill(0xff);
        header[512..516].copy_from_slice(&crc32c(&[1; 16]).to_le_bytes());
        header[528..532].copy_from_slice(&entries.to_le_bytes());
        let sum = crc32c(&header);
        header[532..536].copy_from_slice(&sum.to_le_bytes());
        let place = 4096 + 24 * 512;
        disk[place..place + 4096].copy_from_slice(&header);
    }
    disks
}

#[test]
fn degraded_array_with_empty_partial_parity_logs_is_read() {
    let content = content(600 * KIB);
    let mut disks = with_ppl(&content, [0, 0, 1]);
    // Nothing is missing, so parity is not needed.
    let assembly = assemble(&disks);
    check(assembly.layer(top(&assembly, "md")), &content);
    disks[2].clear();
    let assembly = assemble(&disks);
    let layer = assembly.layer(top(&assembly, "md"));
    check(layer, &content);
    assert_eq!(layer.notes, []);
}

#[test]
fn degraded_array_with_partial_parity_is_refused() {
    let refused = Some(Problem::Array(ArrayProblem::DirtyPpl));
    let mut disks = with_ppl(&content(300 * KIB), [0, 1, 0]);
    disks[2].clear();
    assert_eq!(problem(&disks), refused);
    let mut disks = with_ppl(&content(300 * KIB), [0, 0, 0]);
    disks[0].clear();
    disks[1][4096 + 24 * 512 + 700] ^= 1;
    assert_eq!(problem(&disks), refused, "a damaged header");
    // The array was stopped.
    for disk in &mut disks[1..] {
        array().edit(disk, |sb| sb[208..216].fill(0xff));
    }
    assert_eq!(problem(&disks), None);
}

#[test]
fn bitmap_does_not_matter_to_a_reader() {
    let content = content(600 * KIB);
    let array = array();
    let mut disks = array.write(&content);
    for disk in &mut disks {
        array.edit(disk, |sb| {
            sb[8] |= 1;
            sb[96] = 8;
        });
        disk[8192..12288].fill(0xff);
    }
    disks[1].clear();
    let assembly = assemble(&disks);
    let layer = assembly.layer(top(&assembly, "md"));
    check(layer, &content);
    assert_eq!(layer.notes, []);

    // The bitmap of an array that was not stopped does not make its parity valid.
    for disk in [0, 2] {
        array.edit(&mut disks[disk], |sb| sb[208..216].fill(0));
    }
    let assembly = assemble(&disks);
    let layer = assembly.layer(top(&assembly, "md"));
    assert_eq!(layer.notes, [ArrayNote::NotStopped]);
}
