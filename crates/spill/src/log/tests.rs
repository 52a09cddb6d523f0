//! Logs within and beyond their budget return the bytes that were appended.

use super::*;

#[test]
fn bytes_come_back_whatever_the_budget() {
    let dir = tempfile::tempdir().unwrap();
    for budget in [0, 1, 100, 5000, 1 << 20] {
        let mut log = Log::new(&ScratchDir::named(dir.path()), budget);
        let mut all = Vec::new();
        for number in 0..300_u32 {
            let bytes = vec![number as u8; (number * 37 % 211) as usize];
            assert_eq!(log.push(&bytes).unwrap(), all.len() as u64);
            all.extend(bytes);
        }
        assert_eq!(log.len_bytes(), all.len() as u64);
        assert_eq!(log.file.exists(), budget < all.len());
        for (at, len) in [(0, all.len()), (4990, 30), (all.len() - 1, 1), (7, 0)] {
            let mut buf = vec![0; len];
            log.read_at(at as u64, &mut buf).unwrap();
            assert!(buf == all[at..at + len], "budget {budget}, {len} at {at}");
        }
        assert!(log.read_at(all.len() as u64 - 1, &mut [0; 2]).is_err());
        let mut read = Vec::new();
        let mut reader = log.reader(100..log.len_bytes());
        reader.read_to_end(&mut read).unwrap();
        assert!(reader.is_at_end() && read == all[100..]);
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

// SPILL-1
#[test]
fn order_is_kept_across_the_file() {
    let mut log = Log::new(&ScratchDir::named(std::env::temp_dir()), 32);
    for len in 0..50_u64 {
        let mut reader = log.read();
        for number in 0..len {
            assert_eq!(reader.array().unwrap(), number.to_le_bytes());
        }
        assert!(reader.is_at_end());
        log.push(&len.to_le_bytes()).unwrap();
        assert!(log.memory.len() <= 32);
    }
}
