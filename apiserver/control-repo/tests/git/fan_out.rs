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
async fn full_folder_splits_into_subfolders() {
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

#[tokio::test]
async fn a_file_that_is_there_twice_goes_as_one() {
    let bench = Bench::start().await;
    for numbers in (0..300).collect::<Vec<_>>().chunks(30) {
        join_all(numbers.iter().map(|number| bench.write(put(&name(*number), "a: 1", "ann")))).await;
    }
    bench.projected(bench.head().await).await;
    let clone = bench.clone_repository();
    let files = clone.git(&["ls-files"]);
    let names = [name(299), name(298), name(297), name(296)];
    let spread = names.each_ref().map(|name| place(&files, name));
    let direct = names.each_ref().map(|name| format!("things/{name}.yaml"));
    assert!(spread.iter().all(|file| file.starts_with("things/_")), "{spread:?}");
    let values = async || {
        let mut values = Vec::new();
        for name in &names {
            values.push(bench.value(name).await);
        }
        values
    };
    // Where somebody who does not care for the folders puts them.
    for (file, content) in direct.iter().zip(["a: 2\n", "a: 2\n", "a: 2\n", "a: 1\n"]) {
        clone.write(file, content);
    }
    clone.commit_and_push("beside");
    bench.ingested_all(&clone).await;
    let some = |value: &str| Some(value.to_owned());
    assert_eq!(values().await, [some("a: 2"), some("a: 2"), some("a: 2"), some("a: 1")]);

    // Changed and removed by the API, and removed by hand.
    let changed = bench.write(put(&names[0], "a: 3", "ann")).await;
    bench.projected(changed).await;
    let removed = bench.write(remove(&names[1], "ann")).await;
    bench.projected(removed).await;
    clone.git(&["pull", "-q"]);
    clone.git(&["rm", "-q", &direct[2], &direct[3]]);
    clone.commit_and_push("by hand");
    bench.ingested_all(&clone).await;
    // One that said the same in its other place is there still.
    assert_eq!(values().await, [some("a: 3"), None, None, some("a: 1")]);
    let last = bench.write(put(&name(0), "a: 2", "ann")).await;
    bench.projected(last).await;
    clone.git(&["pull", "-q"]);
    let files = clone.git(&["ls-files"]);
    assert_eq!((place(&files, &names[0]), place(&files, &names[3])), (direct[0].clone(), spread[3].clone()));
    for name in &names[1..3] {
        assert!(!files.contains(name), "{name}: {files}");
    }

    // Nothing is made up for, which would be a commit.
    let subjects = bench.subjects();
    let bench = bench.restart().await;
    assert_eq!(bench.subjects(), subjects);
}
