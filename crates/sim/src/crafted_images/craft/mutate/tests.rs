//! Repeated mutations of a block.

use super::*;

#[test]
fn offsets_that_lead_out_of_the_block_stay() {
    let mut block = vec![0; 4096];
    // One item, with data far after the end of the block.
    block[96] = 1;
    block[HEADER_SIZE + 17..HEADER_SIZE + ITEM_HEAD_SIZE].fill(0x7f);
    let mut rng = Rng::new(1);
    for _ in 0..10_000 {
        mutate(&mut block, &mut rng);
    }
}
