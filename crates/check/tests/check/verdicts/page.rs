//! The user documentation lists all faults and differences in the code.

use std::path::Path;

use ubtrfs_check::Fault;

use super::STRICTER;

fn page() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/check.md");
    std::fs::read_to_string(page).unwrap()
}

#[test]
fn page_lists_every_number_with_its_name() {
    let page = page();
    for (number, name) in Fault::ALL {
        let row = format!("| E{number:04} | {name} | ");
        assert!(page.contains(&row), "no row begins with {row}");
    }
}

#[test]
fn page_lists_every_difference() {
    let page = page();
    let (_, differences) = page.split_once("## Where `btrfs check` differs").unwrap();
    for one in STRICTER {
        let row = format!("| E{:04} |", one.number);
        assert!(differences.contains(&row), "no row begins with {row}");
    }
}
