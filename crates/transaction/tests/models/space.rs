//! Sums over block groups, and writes without copy on write.

#[path = "../../src/space/nocow.rs"]
mod nocow;
#[path = "../../src/space/space_info.rs"]
mod space_info;

mod tests;

mod block_group {
    #[derive(Debug, Default)]
    pub(super) struct BlockGroup(super::nocow::NocowWriters);

    impl BlockGroup {
        pub(super) fn nocow_writers(&self) -> &super::nocow::NocowWriters {
            &self.0
        }
    }
}

mod trim_totals {
    #[derive(Debug, Default)]
    pub(crate) struct TrimTotals;
}
