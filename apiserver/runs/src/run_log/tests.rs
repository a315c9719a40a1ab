use stoa_controller::testing::FaultyLog;
use stoa_machinery::log::MemoryLog;
use stoa_storage::documents::LocalDocuments;

use super::*;

#[derive(Debug)]
struct At(i64);

impl Clock for At {
    fn now_ms(&self) -> i64 {
        self.0
    }
}

fn journal(log: &Arc<FaultyLog>) -> RunLog {
    RunLog::new(log.clone(), Arc::new(At(0)), "uid")
}

async fn text(log: &dyn Log) -> String {
    read(log, "uid").await.unwrap().0.iter().map(Line::text).collect()
}

#[tokio::test]
async fn lines_keep_their_order_across_clock_changes() {
    let log: Arc<dyn Log> = Arc::new(MemoryLog::new());
    for (now, text) in [(7_200_000, "first"), (0, "second"), (3_600_000, "third")] {
        let mut journal = RunLog::new(log.clone(), Arc::new(At(now)), "uid");
        journal.note("Applying", text);
        journal.flush().await;
    }
    let (lines, _) = read(&*log, "uid").await.unwrap();
    assert_eq!(lines.iter().map(|line| line.message.as_str()).collect::<Vec<_>>(), ["first", "second", "third"]);
}

#[tokio::test]
async fn lines_above_a_record_of_etcd_are_split() {
    let log = FaultyLog::new(0);
    let mut journal = journal(&log);
    let table: String = (0..60_000).map(|number| format!("+ create   v1:ConfigMap:shop:größe-{number}\n")).collect();
    assert!(table.len() > 2 << 20);
    let unbroken = "ü".repeat(1 << 20);
    journal.note("Planning", &*table);
    journal.note("Planning", &*unbroken);
    for number in 0..5_000 {
        journal.note("Applying", format!("{number} {}", "\u{1}".repeat(100)));
    }
    journal.flush().await;
    let (lines, _) = read(&*log, "uid").await.unwrap();
    let told =
        |range: std::ops::Range<usize>| lines[range].iter().map(|line| line.message.as_str()).collect::<String>();
    let second = lines.iter().position(|line| line.message.starts_with('ü')).unwrap();
    let third = lines.iter().position(|line| line.message.starts_with("0 ")).unwrap();
    assert!(told(0..second) == table && told(second..third) == unbroken, "{second} {third}");
    assert_eq!(lines.len() - third, 5_000);
    assert!(lines.iter().all(|line| line.message.len() <= LONGEST));
    let text = text(&*log).await;
    let heads = text.matches("00:00:00 Planning").count();
    assert_eq!(heads, 2, "lines that go on have no head of their own");
    assert!(text.contains(&table));
    let largest = log.scan("/stoa/journal/", None).await.unwrap().entries.iter().map(|entry| entry.value.len()).max();
    assert!(largest.unwrap() <= LARGEST + 6 * LONGEST, "{largest:?}");
}

#[tokio::test]
async fn lines_are_written_once_after_an_outage() {
    let log = FaultyLog::new(5);
    let mut journal = journal(&log);
    for number in 0..8 {
        journal.note("Applying", format!("line {number}"));
        journal.flush().await;
    }
    let expected: String = (0..8).map(|number| format!("00:00:00 Applying: line {number}\n")).collect();
    assert_eq!(text(&*log).await, expected);
}

#[tokio::test]
async fn what_is_given_up_is_told() {
    let log = FaultyLog::new(usize::MAX);
    let mut journal = journal(&log);
    let long = "x".repeat(LONGEST);
    for _ in 0..(WAITING / LONGEST + 20) {
        journal.note("Applying", &*long);
        journal.flush().await;
    }
    assert!(journal.unwritten.iter().map(|(_, value, _)| value.len()).sum::<usize>() <= WAITING);
    log.fail(0);
    journal.note("Failed", "the end");
    journal.flush().await;
    let (lines, _) = read(&*log, "uid").await.unwrap();
    let lost = WAITING / LONGEST + 20 - lines.iter().filter(|line| line.message == long).count();
    let told = format!("{lost} lines are missing before this one: the log could not be written");
    assert!(lost > 0 && lines.iter().any(|line| line.message == told), "{lost}");
    assert!(lines.iter().any(|line| line.message == "the end"));
}

#[tokio::test]
async fn archived_journal_reads_as_before() {
    let log = FaultyLog::new(0);
    let mut journal = journal(&log);
    journal.note("Planning", "a\nb");
    journal.note("Succeeded", "");
    journal.flush().await;
    let folder = tempfile::tempdir().unwrap();
    let documents = LocalDocuments::open(folder.path()).unwrap();
    let digest = keep(&*log, "uid", &documents, "shop/stack").await.unwrap();
    let document = documents.get("shop/stack", &digest.parse().unwrap()).await.unwrap().unwrap();
    let (lines, _) = read(&*log, "uid").await.unwrap();
    assert_eq!(of_document(&document).unwrap(), lines);
    remove(&*log, "uid").await.unwrap();
    assert!(read(&*log, "uid").await.unwrap().0.is_empty());
}
