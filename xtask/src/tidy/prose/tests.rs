//! Words of sentences are counted, and summaries are checked by their first words.

use super::*;

fn sentences_of(text: &str) -> Vec<(usize, usize)> {
    let lines: Lines<'_> = text
        .lines()
        .enumerate()
        .map(|(at, line)| (at + 1, line))
        .collect();
    let paragraphs = paragraphs(&lines).into_iter();
    paragraphs
        .flat_map(|paragraph| lengths(&paragraph))
        .collect()
}

fn rust(text: &str) -> File {
    File::new(Path::new("a.rs"), text.to_owned())
}

fn words(count: usize) -> String {
    vec!["word"; count].join(" ")
}

#[test]
fn sentences_end_at_their_marks() {
    let text = "One two. Three (four five.) \"Six?\" seven\neight! Nine, e.g. ten: v1.2 - 12\n";
    assert_eq!(sentences_of(text), [(1, 2), (1, 3), (1, 1), (1, 2), (2, 5)]);
}

#[test]
fn paragraphs_items_and_cells_end_sentences() {
    let text = "# Not this one\none\ntwo\n\nthree\n- four\n  five\n2. six\n| seven | eight nine |\n|---|---|\n";
    assert_eq!(
        sentences_of(text),
        [
            (2, 2),
            (5, 1),
            (6, 2),
            (8, 1),
            (9, 1),
            (9, 2),
            (10, 0),
            (10, 0)
        ]
    );
}

#[test]
fn code_counts_as_one_word_or_not_at_all() {
    let text = "Run `cargo test\n-p xtask. a` now.\n```\nnot a word of this.\n```\n";
    assert_eq!(sentences_of(text), [(1, 3)]);
}

/// TIDY-11
#[test]
fn long_sentence_is_found_with_its_line() {
    let long = words(MOST_IN_DOCS + 1);
    let text = format!("//! A.\n\n/// Short. {long}.\nfn a() {{}} // {long}\n");
    let fault = |line| Fault::LongSentence {
        line,
        words: MOST_IN_DOCS + 1,
        most: MOST_IN_DOCS,
    };
    assert_eq!(sentences(&rust(&text)), [fault(3), fault(4)]);
    let longest = format!("/// {}.\n", words(MOST_IN_DOCS));
    assert_eq!(sentences(&rust(&longest)), []);
}

#[test]
fn texts_may_have_longer_sentences() {
    let text = |count| File::new(Path::new("README.md"), format!("\n{}\n", words(count)));
    assert_eq!(sentences(&text(MOST_IN_TEXTS)), []);
    assert_eq!(sentences(&text(MOST_IN_TEXTS + 1)).len(), 1);
}

/// TIDY-16
#[test]
fn long_paragraph_is_found_in_comments_and_texts() {
    for (name, marker) in [("a.rs", "// "), ("a.md", "")] {
        let file = |text: &str| File::new(Path::new(name), format!("{marker}A.\n\n{text}\n"));
        let half = format!("{marker}{}.", words(MOST_IN_PARAGRAPHS / 2));
        let fault = Fault::LongParagraph {
            line: 3,
            words: MOST_IN_PARAGRAPHS + 1,
        };
        let long = file(&format!("{half}\n{half}\n{marker}B."));
        assert_eq!(long_paragraphs(&long), [fault]);
        assert_eq!(long_paragraphs(&file(&format!("{half}\n{half}"))), []);
    }
}

/// TIDY-17
#[test]
fn name_without_an_actor_is_found() {
    let text =
        "//! A.\nfn what_is_b_goes() {}\nfn told_to_who_asks() {}\nfn of_two_files_one_goes() {}\n";
    let fault = |line, name: &str| Fault::FacelessName {
        line,
        name: name.to_owned(),
    };
    assert_eq!(
        faceless_names(&rust(text)),
        [
            fault(2, "what_is_b_goes"),
            fault(3, "told_to_who_asks"),
            fault(4, "of_two_files_one_goes")
        ]
    );
    let good = "//! A.\nfn of_open() {}\nfn files_whose_data_is_b() {}\nfn whole() {}\n";
    assert_eq!(faceless_names(&rust(good)), []);
}

/// TIDY-10
#[test]
fn summaries_that_lean_are_found() {
    for start in STARTS {
        let text = format!("//! A.\n\nstruct A {{\n    /// {start} b.\n    c: u8,\n}}\n");
        assert_eq!(
            summaries(&rust(&text)),
            [Fault::LeaningSummary { line: 4, start }]
        );
    }
}

/// TIDY-10
#[test]
fn summary_without_a_subject_is_found() {
    let text = "//! What a is.\n\n/// What b is.\nfn b() {}\n";
    let fault = |line| Fault::LeaningSummary {
        line,
        start: "What",
    };
    assert_eq!(summaries(&rust(text)), [fault(1), fault(3)]);
}

/// TIDY-14
#[test]
fn sentence_without_an_actor_is_found_in_comments_and_texts() {
    let fault = |line| Fault::FacelessActor { line };
    let text = "//! A.\n\n// One. Who b, goes.\nfn a() {} // left to whoever asks\n/// Whoever c.\nfn b() {}\n";
    assert_eq!(actors(&rust(text)), [fault(3), fault(4), fault(5)]);
    let page = File::new(Path::new("a.md"), "One.\n\n- Who asks, hears.\n".to_owned());
    assert_eq!(actors(&page), [fault(3)]);
    for good in [
        "//! The user who asks.\n",
        "//! A.\nconst A: &str = \"Who\";\n",
    ] {
        assert_eq!(actors(&rust(good)), []);
    }
}

/// TIDY-15
#[test]
fn summary_of_a_function_without_a_verb_is_found() {
    let fault = |line| Fault::SummaryWithoutVerb { line };
    let text = "//! A.\n\n/// The b.\n#[must_use = \"[\"]\npub(super) const unsafe fn b() {}\n/// Bytes of c.\nfn c();\n";
    assert_eq!(verbs::faults(&rust(text)), [fault(3), fault(6)]);
    for good in [
        "/// Reads b.\n/// The rest.\nfn b() {}\n",
        "/// Re-reads b.\npub fn b() {}\n",
        "/// The b.\nstruct B;\n",
        "/// The b.\nfn_b!();\n",
        "/// The b is c.\n#[test]\nfn b_is_c() {}\n",
        "/// TIDY-15\n#[cfg(a)]\n#[test]\nfn b_is_c() {}\n",
        "/// RULE-1, RULE-2: b.\nfn b() {}\n",
    ] {
        assert_eq!(verbs::faults(&rust(good)), []);
    }
}

#[test]
fn other_summaries_stand_alone() {
    for good in [
        "Whole trees.",
        "Often b.",
        "Assigns b.",
        "Whether b.",
        "A.\n/// As b.",
    ] {
        let text = format!("//! A.\n/// {good}\n");
        assert_eq!(summaries(&rust(&text)), []);
    }
}

#[test]
fn file_with_more_than_known_is_found() {
    let file = rust("//! As b.\n");
    let mut findings = Vec::new();
    let counted = check(Path::new("/nonexistent"), &[file], &mut findings);
    assert_eq!(findings.len(), 1);
    assert_eq!(counted.counts["a.rs summaries"], 1);
}
