//! Tags without a place, without a declaration and with two of them are found.

use super::*;

fn file(path: &str, text: &str) -> File {
    File::new(Path::new(path), text.to_owned())
}

fn faults(files: &[(&str, &str)]) -> Vec<Fault> {
    let files: Vec<File> = files.iter().map(|(path, text)| file(path, text)).collect();
    let mut findings = Vec::new();
    check(Path::new("/nonexistent"), &files, &mut findings);
    findings.into_iter().map(|finding| finding.fault).collect()
}

fn unplaced(line: usize, tag: &str, lacks: &'static str) -> Fault {
    let tag = tag.to_owned();
    Fault::UnplacedTag { line, tag, lacks }
}

#[test]
fn tags_are_told_from_other_words() {
    let text = "(MOON-1), FROM-MOON-2. MO0N-3: A-1 a-1 X86-64bit MAX_B-1 -1 --A-- UTF-8's SLOT-";
    let tags: Vec<&str> = tags_in(text).collect();
    assert_eq!(tags, ["MOON-1", "FROM-MOON-2", "MO0N-3", "UTF-8"]);
}

#[test]
fn tag_with_its_places_is_no_fault() {
    let text = "//! A.\n//! - MOON-1: b.\n//! - MOON-2: c.\n\n// MOON-1\nfn d() { assert!(e, \"MOON-2\") }\n\
                #[cfg(test)]\nmod tests {\n/// MOON-1\nfn f() {}\n}\n";
    let test = "//! MOON-2 in full.\n";
    let files = [
        ("crates/tree/src/a.rs", text),
        ("crates/tree/tests/a.rs", test),
    ];
    assert_eq!(faults(&files), []);
}

/// TIDY-9
#[test]
fn tag_without_code_or_test_is_found() {
    let text =
        "//! A.\n//! - MOON-1: b, as MOON-1 says.\n//! - MOON-2: c; see MOON-1.\n// MOON-2\n";
    assert_eq!(
        faults(&[("crates/tree/src/a.rs", text)]),
        [
            unplaced(2, "MOON-1", "code"),
            unplaced(2, "MOON-1", "test"),
            unplaced(3, "MOON-2", "test"),
        ]
    );
}

#[test]
fn tag_of_a_test_needs_one_place() {
    let path = "crates/tree/tests/a.rs";
    let text = "//! A.\n//! - TIDE-1: b.\n//! - TIDE-2: c.\n// TIDE-2\n";
    assert_eq!(faults(&[(path, text)]), [unplaced(2, "TIDE-1", "place")]);
}

/// TIDY-8
#[test]
fn undeclared_tag_is_found_in_comments_only() {
    let text = "//! A.\n// MOON-1, UTF-8\nconst B: &str = \"MOON-2\";\n";
    let tag = "MOON-1".to_owned();
    assert_eq!(
        faults(&[("crates/tree/src/a.rs", text)]),
        [Fault::UndeclaredTag { line: 2, tag }]
    );
}

/// TIDY-8
#[test]
fn tag_that_is_declared_twice_is_found() {
    let text = "//! A.\n//! - MOON-1: b.\n// MOON-1\n#[cfg(test)] mod tests { /* MOON-1 */ }\n";
    let other = "//! B.\n//! - MOON-1: c.\n";
    let fault = Fault::RepeatedTag {
        line: 2,
        tag: "MOON-1".to_owned(),
        first: "a.rs".to_owned(),
    };
    assert_eq!(faults(&[("a.rs", text), ("b.rs", other)]), [fault]);
}
