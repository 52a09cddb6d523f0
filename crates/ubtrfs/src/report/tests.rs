//! Items with device error counters.

use super::*;

#[test]
fn old_items_hold_fewer_numbers() {
    let item: Vec<u8> = (1..=5u64).flat_map(u64::to_le_bytes).collect();
    let errors = |item: Option<&[u8]>| {
        let errors = DeviceErrors::of(7, item);
        assert_eq!(errors.device_id, 7);
        [
            errors.write_errors,
            errors.read_errors,
            errors.flush_errors,
            errors.corruption_errors,
            errors.generation_errors,
        ]
    };
    assert_eq!(errors(Some(&item)), [1, 2, 3, 4, 5]);
    assert_eq!(errors(Some(&item[..30])), [1, 2, 3, 0, 0]);
    assert_eq!(errors(None), [0; 5]);
}
