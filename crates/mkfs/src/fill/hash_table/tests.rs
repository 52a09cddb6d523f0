//! Numbers are found by their hashes, including equal ones.

use super::*;

fn hash(number: u32) -> u64 {
    // Three numbers have the same hash.
    u64::from(number / 3).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[test]
fn numbers_are_found_whatever_there_is_room_for() {
    let scratch_dir = ScratchDir::named(std::env::temp_dir());
    for memory_bytes in [0, 64 << 10, 1 << 20] {
        let mut table = HashTable::new(&scratch_dir, memory_bytes).unwrap();
        for number in 0..10_000 {
            table.insert(hash(number), number).unwrap();
        }
        for number in (0..10_000).rev() {
            let is_it = |found| Ok::<_, io::Error>(found == number);
            assert_eq!(table.find(hash(number), is_it).unwrap(), Some(number));
        }
        let is_it = |_| Ok::<_, io::Error>(false);
        assert_eq!(table.find(hash(7), is_it).unwrap(), None);
    }
}
