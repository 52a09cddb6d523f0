//! Any bytes as a superblock. The checksum is corrected, and the magic unless the input has its own, so that the
//! checks of the fields are reached.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ubtrfs_format::check::BlockContext;
use ubtrfs_format::csum::CsumType;
use ubtrfs_format::superblock::{MAGIC, SUPERBLOCK_SIZE, Superblock};

const MAGIC_AT: usize = 64;

fuzz_target!(|data: &[u8]| {
    let mut block = vec![0; SUPERBLOCK_SIZE];
    let len = data.len().min(SUPERBLOCK_SIZE);
    block[..len].copy_from_slice(&data[..len]);
    if let Some(superblock) = Superblock::from_block(&block) {
        // Unchanged, and most likely damaged.
        let _ = superblock.validate(superblock.bytenr.get());
    }
    block[MAGIC_AT..MAGIC_AT + MAGIC.len()].copy_from_slice(&MAGIC);
    let raw = Superblock::from_block(&block).map_or(0, |superblock| superblock.csum_type.get());
    let csum_type = CsumType::from_raw(raw).unwrap_or_default();
    csum_type.seal_block(&mut block);
    let Some(superblock) = Superblock::from_block(&block) else {
        return;
    };
    look(superblock);
    if superblock.validate(superblock.bytenr.get()).is_ok() {
        assert!(superblock.nodesize.get().is_power_of_two());
        assert!(superblock.system_chunks().all(|chunk| chunk.is_ok()));
        let _ = BlockContext::new(superblock);
    }
});

/// Reads all fields of a superblock that commands show, valid or not.
fn look(superblock: &Superblock) {
    let _ = superblock.check_supported();
    let _ = superblock.read_only_features();
    let _ = superblock.label();
    let _ = superblock.metadata_fsid().to_string();
    for chunk in superblock.system_chunks().flatten() {
        assert_eq!(
            chunk.stripes.len(),
            usize::from(chunk.chunk.num_stripes.get())
        );
    }
}
