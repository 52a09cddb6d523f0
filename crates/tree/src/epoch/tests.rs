//! Tokens held by readers.

use super::*;

#[test]
fn the_last_hold_on_an_old_token_is_the_commits() {
    let epochs = Epochs::new();
    let long = epochs.hold();
    let brief = epochs.hold_briefly();
    let old = epochs.advance();
    assert_eq!((old.number(), epochs.hold().number()), (0, 1));
    assert_eq!(Arc::strong_count(&old), 3);
    drop(brief);
    assert_eq!(Arc::strong_count(&old), 2);
    drop(long);
    assert_eq!(Arc::strong_count(&old), 1);
}
