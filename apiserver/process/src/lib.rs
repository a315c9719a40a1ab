//! Metrics of the process, as Prometheus' clients have them.
//!
//! Start at [`ProcessCollector`]. Names, types, help texts and sources of the numbers are those of `NewProcessCollector` in
//! `github.com/prometheus/client_golang`, plus the number of threads. Numbers that the system does not have are left out: on other
//! systems than Linux, almost all.

use std::{collections::HashMap, fs};

use prometheus::{
    core::{Collector, Desc},
    proto::{Counter, Gauge, Metric, MetricFamily, MetricType},
};
use rustix::{
    param::{clock_ticks_per_second, page_size},
    process::{Resource, getrlimit},
};

/// Collects what this process takes, as of when it is asked.
#[derive(Debug)]
pub struct ProcessCollector {
    descs: Vec<Desc>,
}

impl ProcessCollector {
    /// One of this process.
    pub fn for_self() -> Self {
        let desc =
            |family: Family| Desc::new(family.name.to_owned(), family.help.to_owned(), Vec::new(), HashMap::new());
        let descs = families().into_iter().map(|family| desc(family).expect("a name that is valid, and a help text"));
        Self { descs: descs.collect() }
    }
}

impl Collector for ProcessCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        families().into_iter().filter_map(Family::told).collect()
    }
}

/// When this process was started, in seconds since 1970; as exactly as the system has it, mostly hundredths. `None` when it
/// does not tell.
pub fn started() -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let booted: u64 = text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(booted as f64 + seconds(Stat::of_this_process()?.started))
}

/// A metric, with what it is now if the system tells that.
struct Family {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    value: Option<f64>,
}

impl Family {
    fn told(self) -> Option<MetricFamily> {
        let value = self.value?;
        let mut metric = Metric::default();
        if self.kind == MetricType::COUNTER {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        let mut family = MetricFamily::default();
        family.set_name(self.name.to_owned());
        family.set_help(self.help.to_owned());
        family.set_field_type(self.kind);
        family.set_metric(vec![metric]);
        Some(family)
    }
}

fn families() -> [Family; 10] {
    let stat = Stat::of_this_process();
    let of_stat = |value: fn(&Stat) -> f64| stat.as_ref().map(value);
    let most = |resource| Some(getrlimit(resource).current.unwrap_or(u64::MAX) as f64);
    let (received, sent) = fs::read_to_string("/proc/self/net/netstat").ok().and_then(|text| octets(&text)).unzip();
    let counter = |name, help, value| Family { name, help, kind: MetricType::COUNTER, value };
    let gauge = |name, help, value| Family { name, help, kind: MetricType::GAUGE, value };
    [
        counter(
            "process_cpu_seconds_total",
            "Total user and system CPU time spent in seconds.",
            of_stat(|stat| seconds(stat.processor)),
        ),
        gauge("process_open_fds", "Number of open file descriptors.", open_descriptors()),
        gauge("process_max_fds", "Maximum number of open file descriptors.", most(Resource::Nofile)),
        gauge(
            "process_virtual_memory_bytes",
            "Virtual memory size in bytes.",
            of_stat(|stat| stat.virtual_bytes as f64),
        ),
        gauge(
            "process_virtual_memory_max_bytes",
            "Maximum amount of virtual memory available in bytes.",
            most(Resource::As),
        ),
        gauge(
            "process_resident_memory_bytes",
            "Resident memory size in bytes.",
            of_stat(|stat| (stat.resident_pages * page_size() as u64) as f64),
        ),
        gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.", started()),
        counter(
            "process_network_receive_bytes_total",
            "Number of bytes received by the process over the network.",
            received,
        ),
        counter("process_network_transmit_bytes_total", "Number of bytes sent by the process over the network.", sent),
        gauge("process_threads", "Number of OS threads in the process.", of_stat(|stat| stat.threads as f64)),
    ]
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / clock_ticks_per_second() as f64
}

/// How many files and sockets are open.
fn open_descriptors() -> Option<f64> {
    const OPEN: &str = "/proc/self/fd";
    // Kernels from 6.2 on say it without a list. In the list is what reads it, too.
    match fs::metadata(OPEN).ok()?.len() {
        0 => Some(fs::read_dir(OPEN).ok()?.count().saturating_sub(1) as f64),
        told => Some(told as f64),
    }
}

/// How many bytes have come and gone over the network, of all in the process's network namespace.
fn octets(netstat: &str) -> Option<(f64, f64)> {
    // A line with names, and one with numbers.
    let mut lines = netstat.lines().filter_map(|line| line.strip_prefix("IpExt:"));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let number = |wanted: &str| {
        let found = names.split_whitespace().zip(numbers.split_whitespace()).find(|(name, _)| *name == wanted);
        found.and_then(|(_, number)| number.parse().ok())
    };
    Some((number("InOctets")?, number("OutOctets")?))
}

/// What `proc_pid_stat(5)` tells of a process.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    /// The time of processors that was taken, in ticks.
    processor: u64,
    threads: u64,
    /// When it was started, in ticks since the system was.
    started: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Stat {
    fn of_this_process() -> Option<Self> {
        // The name of the program in it may be cut off within a character.
        Self::read(&String::from_utf8_lossy(&fs::read("/proc/self/stat").ok()?))
    }

    fn read(text: &str) -> Option<Self> {
        // The name stands in brackets, and may have any in it.
        let (_, behind) = text.rsplit_once(')')?;
        let fields: Vec<&str> = behind.split_whitespace().collect();
        // They are counted from 1; behind the name comes the third.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            processor: field(14)? + field(15)?,
            threads: field(20)?,
            started: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

    use super::*;

    /// The value of a metric that a collector tells now.
    fn value(name: &str) -> f64 {
        let families = ProcessCollector::for_self().collect();
        let family = families.iter().find(|family| family.name() == name).expect(name);
        let metric = &family.get_metric()[0];
        match family.get_field_type() {
            MetricType::COUNTER => metric.get_counter().get_value(),
            _ => metric.get_gauge().get_value(),
        }
    }

    #[test]
    fn process_metrics_match_go_names_and_types() {
        let registry = prometheus::Registry::new();
        registry.register(Box::new(ProcessCollector::for_self())).unwrap();
        let told: Vec<_> = registry
            .gather()
            .iter()
            .map(|family| format!("{} {:?}", family.name(), family.get_field_type()))
            // Where there is no network, nothing is told of it.
            .filter(|told| !told.starts_with("process_network_"))
            .collect();
        let expected = [
            "process_cpu_seconds_total COUNTER",
            "process_max_fds GAUGE",
            "process_open_fds GAUGE",
            "process_resident_memory_bytes GAUGE",
            "process_start_time_seconds GAUGE",
            "process_threads GAUGE",
            "process_virtual_memory_bytes GAUGE",
            "process_virtual_memory_max_bytes GAUGE",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn processor_time_has_fractions_of_seconds() {
        let (before, began) = (value("process_cpu_seconds_total"), Instant::now());
        let mut after = before;
        while after == before {
            assert!(began.elapsed() < Duration::from_secs(60), "it does not grow");
            after = value("process_cpu_seconds_total");
        }
        // Tests beside this one take some, too.
        assert!(after > before && after - before < 0.9, "{before} {after}");
    }

    #[test]
    fn numbers_are_those_of_this_process() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        let start = value("process_start_time_seconds");
        // When the system was started is told in whole seconds.
        assert!(start < now + 2.0 && start > now - 3600.0 * 24.0, "{start} is not before {now}");
        let (resident, size) = (value("process_resident_memory_bytes"), value("process_virtual_memory_bytes"));
        assert!(resident > 100_000.0 && resident < size && size <= value("process_virtual_memory_max_bytes"));
        assert!(value("process_threads") >= 1.0);
        let before = value("process_open_fds");
        assert!(before >= 3.0 && before <= value("process_max_fds"), "{before}");
        let files: Vec<_> = (0..100).map(|_| fs::File::open("/dev/null").unwrap()).collect();
        // Others open and close some meanwhile.
        assert!(value("process_open_fds") >= before + 80.0);
        drop(files);
    }

    #[test]
    fn what_the_kernel_writes_is_read() {
        let line = "3443 (a) R (b)) S 3431 3431 7743 0 -1 4194304 100 0 0 0 1234 66 0 0 20 0 7 0 125097 3133440 410 \
                    18446744073709551615 94050768957440 0\n";
        let stat = Stat::read(line).unwrap();
        let expected =
            Stat { processor: 1300, threads: 7, started: 125_097, virtual_bytes: 3_133_440, resident_pages: 410 };
        assert_eq!(stat, expected);
        assert_eq!(Stat::read("3443 (cat) R 3431"), None);
        let netstat = "TcpExt: InOctets\nTcpExt: 7\nIpExt: InNoRoutes InOctets OutOctets\nIpExt: 0 195536740 1714384\n";
        assert_eq!(octets(netstat), Some((195_536_740.0, 1_714_384.0)));
        assert_eq!(octets("TcpExt: InOctets\nTcpExt: 7\n"), None);
    }
}
