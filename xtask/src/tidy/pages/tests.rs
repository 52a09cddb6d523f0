//! Dead references are found, and valid ones are not reported.

use super::*;

fn page(path: &str, text: &str) -> File {
    File::new(Path::new(path), text.to_owned())
}

fn dead(pages: &[File]) -> Vec<Fault> {
    let all = pages.iter();
    let all = all
        .map(|page| (page.path.as_path(), headings(&page.text)))
        .collect();
    dead_links(&pages[0], &all, |path| {
        path == Path::new("docs/picture.svg")
    })
}

/// TIDY-12
#[test]
fn links_that_lead_nowhere_are_found() {
    let text = "# Its `own` heading!\n[a](other.md) [b](#nowhere)\n![c](missing.svg)\n[d\ne](b.md#there)\n";
    let other = page("docs/b.md", "## Here\n```\n## There\n```\n");
    let fault = |line, target: &str| Fault::DeadLink {
        line,
        target: target.to_owned(),
    };
    assert_eq!(
        dead(&[page("docs/a.md", text), other]),
        [
            fault(2, "other.md"),
            fault(2, "#nowhere"),
            fault(3, "missing.svg"),
            fault(5, "b.md#there"),
        ]
    );
}

#[test]
fn links_that_lead_somewhere_are_no_faults() {
    let text = "# Its `own` heading!\n[a](#its-own-heading) ![b](picture.svg)\n[c](../top.md#etcfstab), \
        [d](https://example.org/x.md)\n```\n[e](nowhere.md)\n```\n";
    let top = page("top.md", "## /etc/fstab\n");
    assert_eq!(dead(&[page("docs/a.md", text), top]), []);
}

/// TIDY-13
#[test]
fn tests_that_are_nowhere_are_found() {
    let source = page(
        "a.rs",
        "fn a_test_that_is_there() {}\nasync fn short() {}\n",
    );
    let files = [source];
    let functions = functions(&files);
    let text = "`a_test_that_is_there`, `user_subvol_rm_allowed`, `FIELD_OF_MANY_LONG_WORDS`,\n\
        `a_test_that_is_gone`\n```\n`another_test_that_is_gone`\n```\n";
    let name = "a_test_that_is_gone".to_owned();
    assert_eq!(
        unknown_functions(text, &functions),
        [Fault::UnknownFunction { line: 2, name }]
    );
}
