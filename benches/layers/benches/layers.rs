//! The time of each layer's work; `cargo bench -p ubtrfs-layers [NAME]`.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ubtrfs_layers::ALL;

fn layers(criterion: &mut Criterion) {
    for (_, make) in ALL {
        let mut work = make();
        let mut group = criterion.benchmark_group("layers");
        group.throughput(Throughput::Elements(work.things));
        group.bench_function(work.name, |bencher| bencher.iter(&mut work.run));
        group.finish();
    }
}

criterion_group!(benches, layers);
criterion_main!(benches);
