//! Lists of features and their results.

use super::*;

fn after(list: &str) -> Result<Vec<&'static str>, FeatureListError> {
    let mut set = FeatureSet::default();
    set.apply_list(list).map(|()| set.names())
}

#[test]
fn defaults_are_those_of_current_mkfs() {
    let names = [
        "extref",
        "skinny-metadata",
        "no-holes",
        "free-space-tree",
        "block-group-tree",
    ];
    assert_eq!(after("").unwrap(), names);
}

#[test]
fn names_and_aliases_set_and_clear() {
    assert_eq!(
        after("^bgt,^extref,mixed-bg").unwrap(),
        ["mixed-bg", "skinny-metadata", "no-holes", "free-space-tree"]
    );
}

#[test]
fn block_group_tree_by_default_goes_with_what_it_needs() {
    assert_eq!(
        after("^fst").unwrap(),
        ["extref", "skinny-metadata", "no-holes"]
    );
    assert!(!after("^no-holes").unwrap().contains(&"block-group-tree"));
}

#[test]
fn block_group_tree_by_name_stays_whatever_the_order() {
    for list in ["bgt,^fst", "^fst,bgt", "^no-holes,block-group-tree"] {
        assert!(after(list).unwrap().contains(&"block-group-tree"), "{list}");
    }
}

#[test]
fn unknown_and_unmade_features_are_refused_by_name() {
    assert_eq!(
        after("foo"),
        Err(FeatureListError::Unknown("foo".to_owned()))
    );
    assert_eq!(after("zoned"), Err(FeatureListError::Refused("zoned")));
    assert!(after("^zoned").is_ok());
    assert_eq!(after("quota,squota"), Err(FeatureListError::BothQuotas));
}
