//! Folders that are full, as people who clone the repository see them.

use futures_util::future::join_all;

use crate::support::{Bench, put, remove};

/// As many things as a folder takes, and some more.
const COUNT: usize = 1_010;

fn name(number: usize) -> String {
    format!("thing-{number:04}")
}

/// Where the clone has the file of a thing.
fn place(files: &str, name: &str) -> String {
    let file = format!("/{name}.yaml");
    let mut places = files.lines().filter(|line| line.ends_with(&file));
    let place = places.next().unwrap_or_else(|| panic!("{name} has no file")).to_owned();
    assert_eq!(places.next(), None, "{name} has two files");
    place
}

#[tokio::test]
async fn a_full_folder_has_folders_and_people_need_not_care() {
    let bench = Bench::start().await;
    // A few at a time, so that they have their order.
    for numbers in (0..COUNT).collect::<Vec<_>>().chunks(100) {
        join_all(numbers.iter().map(|number| bench.write(put(&name(*number), "a: 1", "ann")))).await;
    }
    let version = bench.write(put(&name(1), "a: 2", "ann")).await;
    bench.projected(version).await;
    assert_eq!(bench.subjects().len(), COUNT + 2);

    let clone = bench.clone_repository();
    let files = clone.git(&["ls-files"]);
    assert_eq!(place(&files, &name(1)), format!("things/{}.yaml", name(1)));
    let last = place(&files, &name(COUNT - 1));
    let (folder, _) = last.strip_prefix("things/_").unwrap().split_once('/').unwrap();
    assert_eq!(folder.len(), 2);

    // What is pushed there is the thing's, and so is what is put where it would be if the folder were not full.
    clone.write(&last, "a: 3\n");
    clone.git(&["mv", &place(&files, &name(COUNT - 2)), &format!("things/{}.yaml", name(COUNT - 2))]);
    clone.write(&format!("things/{}.yaml", name(COUNT)), "a: 4\n");
    clone.git(&["rm", "-q", &place(&files, &name(COUNT - 3))]);
    clone.commit_and_push("by hand");
    bench.ingested_all(&clone).await;
    for (number, value) in
        [(COUNT - 1, Some("a: 3")), (COUNT - 2, Some("a: 1")), (COUNT - 3, None), (COUNT, Some("a: 4"))]
    {
        assert_eq!(bench.value(&name(number)).await.as_deref(), value, "{}", name(number));
    }
    // One that only went elsewhere says what it said.
    assert_eq!(bench.applied().await.len(), 3, "{:?}", bench.applied().await);

    // Changed where they are, and removed.
    bench.write(put(&name(COUNT - 1), "a: 6", "ann")).await;
    bench.write(put(&name(COUNT - 2), "a: 7", "ann")).await;
    let version = bench.write(remove(&name(COUNT - 4), "ann")).await;
    bench.projected(version).await;
    clone.git(&["pull", "-q"]);
    assert_eq!(clone.read(&last), "a: 6\n");
    assert_eq!(clone.read(&format!("things/{}.yaml", name(COUNT - 2))), "a: 7\n");
    let files = clone.git(&["ls-files"]);
    assert!(!files.contains(&name(COUNT - 4)));
    for number in [0, 1, COUNT - 2, COUNT - 1, COUNT] {
        place(&files, &name(number));
    }

    // Nothing is made up for, which would be a commit.
    let subjects = bench.subjects();
    let bench = bench.restart().await;
    assert_eq!(bench.subjects(), subjects);
    bench.git(&["fsck", "--strict", "--full"]);
}
