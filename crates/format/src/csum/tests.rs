//! Published check values, sealing and batches; values from the kernel are in `tests/kernel_vectors.rs`.

use proptest::prelude::*;

use super::*;

fn hex(csum: Csum) -> String {
    csum.to_string()
}

#[test]
fn published_check_values_match() {
    assert_eq!(hex(CsumType::Crc32c.compute(b"123456789")), "0x839206e3");
    assert_eq!(hex(CsumType::XxHash64.compute(b"")), "0x99e9d85137db46ef");
    assert_eq!(
        hex(CsumType::Sha256.compute(b"abc")),
        "0xba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
}

#[test]
fn raw_values_and_names_are_read_back() {
    for kind in CsumType::ALL {
        assert_eq!(CsumType::from_raw(kind.raw()), Some(kind));
        assert_eq!(CsumType::from_name(kind.name()), Some(kind));
    }
    assert_eq!(CsumType::from_raw(4), None);
    assert_eq!(CsumType::from_name("xxhash"), Some(CsumType::XxHash64));
    assert_eq!(CsumType::from_name("BLAKE2b"), Some(CsumType::Blake2b));
    assert_eq!(CsumType::from_name("md5"), None);
}

/// CSUM-1
#[test]
fn sealed_block_verifies_and_a_flipped_bit_does_not() {
    for kind in CsumType::ALL {
        let mut block = vec![0x5a; 4096];
        kind.seal_block(&mut block);
        assert_eq!(kind.verify_block(&block), Ok(()));
        assert!(
            block[kind.size_bytes()..CSUM_FIELD_BYTES]
                .iter()
                .all(|&byte| byte == 0)
        );
        block[4095] ^= 1;
        let mismatch = kind.verify_block(&block).unwrap_err();
        assert_eq!(mismatch.found, kind.block_csum(&block));
        assert_ne!(mismatch.found, mismatch.stored);
    }
}

// CSUM-2
#[test]
fn tail_of_the_stored_field_does_not_decide() {
    let mut block = vec![7; 4096];
    CsumType::Crc32c.seal_block(&mut block);
    block[31] = 0xff;
    assert_eq!(CsumType::Crc32c.verify_block(&block), Ok(()));
}

proptest! {
    #[test]
    fn batch_equals_one_by_one(
        data in prop::collection::vec(any::<u8>(), 0..70 * 64),
        kind in prop::sample::select(CsumType::ALL.to_vec()),
    ) {
        let sector = 64;
        let data = &data[..data.len() / sector * sector];
        let mut batch = vec![0xee];
        kind.compute_sectors(data, sector, &mut batch);
        let mut single = vec![0xee];
        for one in data.chunks(sector) {
            single.extend_from_slice(kind.compute(one).significant(kind));
        }
        prop_assert_eq!(batch, single);
    }
}
