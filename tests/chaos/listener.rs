//! Fault 32, in a real process of `tenure run`: load and abuse of the status listener.

use testkit::faults::load;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use load::{LoadedLeader, PLACES, connect_as, room_for_connections, since};
use rustix::process::Signal;
use testkit::processes::process::until;

/// Runs one test at a time, because each needs the whole machine and the descriptors of this
/// process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether the other side has closed, without blocking; reads what is available.
fn has_closed(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
        }
    }
}

/// Reads the status code of one answer; `None` if the other side has closed instead.
fn code(stream: &mut TcpStream) -> Option<u16> {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).ok()?;
    line.get(9..12)?.parse().ok()
}

/// Opens `count` connections, and sends a part of a request, a whole one or nothing on each.
fn open(leader: &LoadedLeader, count: usize) -> Vec<TcpStream> {
    (0..count)
        .map(|number| {
            let mut stream = connect_as(number, leader.candidate.address).unwrap();
            let words: &[u8] = match number % 3 {
                0 => b"",
                1 => b"GET /leader HTTP/1.1\r\nHost: localhost\r\n\r\n",
                _ => b"GET /leader HTTP/1.1\r\nHost: ",
            };
            // It may be closed already.
            let _ = stream.write_all(words);
            if number % 500 == 0 {
                leader.assert_bounded();
            }
            stream
        })
        .collect()
}

/// Checks the limits for a while.
fn watch(leader: &LoadedLeader, length: Duration) {
    let begun = tenure::clock::now();
    while since(begun) < length {
        leader.assert_bounded();
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn fault_32_of_ten_thousand_connections_512_are_kept_and_others_are_answered() {
    let _alone = alone();
    let leader = LoadedLeader::start(&[], &[]);
    let count = 10_000.min(room_for_connections() - 200);
    let kept_after = [1, 2].map(|round| {
        let mut held = open(&leader, count);
        eprintln!("{round}: {count} connections; memory grew by {} KiB", leader.grown());
        watch(&leader, Duration::from_secs(2));
        // Those that wait in line are open until it is their turn.
        until(Duration::from_secs(60), "no more connections are kept than fit", || {
            held.retain_mut(|it| !has_closed(it));
            (held.len() <= PLACES).then_some(())
        });
        drop(held);
        leader.await_few_descriptors();
        leader.grown()
    });
    let [first, second] = kept_after;
    eprintln!("memory kept: {first} KiB, then {second} KiB");
    assert!(second < first + 3 * 1024, "each load leaves more: {first} KiB, then {second}");
    leader.relieved();
}

#[test]
fn fault_32_a_burst_of_connections_waits_in_line() {
    let _alone = alone();
    let leader = LoadedLeader::start(&[], &[]);
    // These connections arrive while it cannot accept; a first packet that is dropped is sent again
    // after 1 s.
    leader.candidate.signal(Signal::STOP);
    let begun = tenure::clock::now();
    let burst: Vec<_> =
        (0..900).map(|number| connect_as(number, leader.candidate.address).unwrap()).collect();
    let took = since(begun);
    leader.candidate.signal(Signal::CONT);
    assert!(took < Duration::from_millis(900), "{took:?}: some came twice");
    drop(burst);
    watch(&leader, Duration::from_secs(1));
    leader.relieved();
}

#[test]
fn fault_37_clients_that_pipeline_expensive_requests_delay_no_renewal_and_no_other_client() {
    let _alone = alone();
    let leader = LoadedLeader::start(&[], &[]);
    let pipelines = ["/metrics", "/", "/status"]
        .map(|path| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").repeat(400));
    let mut clients: Vec<_> = (0..200)
        .map(|number| {
            let stream = connect_as(number, leader.candidate.address).unwrap();
            stream.set_nonblocking(true).unwrap();
            (stream, pipelines[number % 3].as_bytes(), 0)
        })
        .collect();
    let (begun, mut received) = (tenure::clock::now(), 0);
    let mut answers = vec![0; 256 * 1024];
    while since(begun) < Duration::from_secs(4) {
        for (stream, pipeline, sent) in &mut clients {
            if let Ok(more) = stream.write(&pipeline[*sent..]) {
                *sent = (*sent + more) % pipeline.len();
            }
            received += stream.read(&mut answers).unwrap_or_default();
        }
        leader.assert_bounded();
    }
    assert!(received > 1 << 20, "the requests were answered: {received} bytes");
    drop(clients);
    leader.relieved();
}

#[test]
fn fault_32_a_request_that_trickles_in_is_closed_within_five_seconds() {
    let _alone = alone();
    let leader = LoadedLeader::start(&[], &[]);
    // Fewer than the connection limit, so that they are closed only because they are slow.
    let mut slow: Vec<_> = (0..400)
        .map(|number| {
            let mut stream = connect_as(number, leader.candidate.address).unwrap();
            if number % 2 == 0 {
                stream.write_all(b"GET /leader HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
                assert_eq!(code(&mut stream), Some(200));
            }
            let begun = tenure::clock::now();
            (number, stream, begun)
        })
        .collect();
    let mut longest = Duration::ZERO;
    let words: [&[u8]; 3] = [b"\n", b"G", b"GET / HTTP/1.1\r\nA: "];
    for round in 0.. {
        slow.retain_mut(|(number, stream, begun)| {
            if has_closed(stream) {
                longest = longest.max(since(*begun));
                return false;
            }
            // If it is being closed now, the next round detects that.
            let _ = match round {
                0 => {
                    *begun = tenure::clock::now();
                    stream.write_all(words[*number % words.len()])
                }
                _ => stream.write_all(if *number % words.len() == 0 { b"\n" } else { b"x" }),
            };
            // Five seconds, plus the delay of a busy machine.
            assert!(since(*begun) < Duration::from_secs(8), "{number} is open yet");
            true
        });
        if slow.is_empty() {
            break;
        }
        watch(&leader, Duration::from_millis(200));
    }
    eprintln!("the slowest was closed after {longest:?}");
    assert!(longest > Duration::from_secs(3), "{longest:?}: something else closed them");
    leader.relieved();
}

/// Sends the same bytes up to 1 GiB in total; returns how many were accepted, and the status code.
fn pour(number: usize, address: SocketAddr, head: &[u8], bytes: &[u8]) -> (usize, Option<u16>) {
    let mut stream = connect_as(number, address).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(head).unwrap();
    let block = bytes.repeat(65_536 / bytes.len());
    let mut taken = 0;
    while taken < 1 << 30 {
        match stream.write(&block) {
            Ok(length) => taken += length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                panic!("{taken} bytes were taken, and it is not closed");
            }
            Err(_) => break,
        }
    }
    (taken, code(&mut stream))
}

#[test]
fn fault_32_a_header_of_a_gibibyte_is_refused_and_takes_no_memory() {
    let _alone = alone();
    let leader = LoadedLeader::start(&[], &[]);
    let address = leader.candidate.address;
    let kinds: [(&str, &str, u16); 5] = [
        ("GET /leader HTTP/1.1\r\nBig: ", "x", 431),
        ("GET /leader HTTP/1.1\r\n", "A: b\r\n", 431),
        ("GET /", "x", 431),
        ("POST /leader HTTP/1.1\r\nContent-Length: 1073741824\r\n\r\n", "x", 413),
        ("POST /leader HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n", 413),
    ];
    std::thread::scope(|scope| {
        let pouring: Vec<_> = (0..40)
            .map(|number| {
                let (head, bytes, expected) = kinds[number % kinds.len()];
                scope.spawn(move || {
                    let (taken, code) = pour(number, address, head.as_bytes(), bytes.as_bytes());
                    // No more than the kernel's buffers of both sides.
                    assert!(taken < 32 << 20, "{taken} bytes of {head:?}");
                    // A reset may overtake the answer.
                    assert!(code.is_none_or(|it| it == expected), "{code:?} to {head:?}");
                    code.is_some()
                })
            })
            .collect();
        while !pouring.iter().all(|it| it.is_finished()) {
            watch(&leader, Duration::from_millis(50));
        }
        let answered =
            pouring.into_iter().filter_map(|it| it.join().unwrap().then_some(())).count();
        eprintln!("{answered} of 40 read their answer; memory grew by {} KiB", leader.grown());
    });
    watch(&leader, Duration::from_secs(1));
    assert!(leader.grown() < 8 * 1024, "memory grew by {} KiB", leader.grown());
    leader.relieved();
}

#[test]
fn fault_32_bad_http_is_400() {
    let _alone = alone();
    let leader = LoadedLeader::start(&[], &[]);
    let bad: [&[u8]; 9] = [
        b"nonsense\r\n\r\n",
        b"GET /leader\r\n\r\n",
        b"GET /leader HTTP/9.9\r\n\r\n",
        b"GET /leader HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /leader HTTP/1.1\r\nHost: a\0b\r\n\r\n",
        b"GET /lea der HTTP/1.1\r\n\r\n",
        b"GET /leader HTTP/1.1\r\nContent-Length: many\r\n\r\n",
        b"GET /leader HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ];
    for number in 0..1_000 {
        let words = bad[number % bad.len()];
        let mut stream = connect_as(number, leader.candidate.address).unwrap();
        stream.write_all(words).unwrap();
        assert_eq!(code(&mut stream), Some(400), "{:?}", String::from_utf8_lossy(words));
    }
    watch(&leader, Duration::from_secs(1));
    leader.relieved();
}

#[test]
fn fault_32_of_a_thousand_subscribers_128_are_served_though_half_never_read() {
    let _alone = alone();
    let leader = LoadedLeader::start(&[], &[]);
    assert!(room_for_connections() > 1_200, "the limit of open files is too low for this test");
    let mut subscribers: Vec<_> = (0..1_000)
        .map(|number| {
            let mut stream = connect_as(number, leader.candidate.address).unwrap();
            stream.write_all(b"GET /watch HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            let reads = number % 2 == 0;
            let code = if reads { code(&mut stream) } else { None };
            assert!([None, Some(200), Some(503)].contains(&code), "{code:?}");
            (stream, reads, code == Some(200))
        })
        .collect();
    let served = subscribers.iter().filter(|(_, _, served)| *served).count();
    eprintln!("{served} of those who read are served; memory grew by {} KiB", leader.grown());
    // All subscribers receive an event every ten seconds; two of them are read.
    for (stream, ..) in subscribers.iter_mut().filter(|(_, _, served)| *served).take(2) {
        let mut lines = BufReader::new(stream).lines();
        let mut events = 0;
        while events < 2 {
            events += usize::from(lines.next().unwrap().unwrap().starts_with("data: "));
        }
        leader.assert_bounded();
    }
    // The subscribers that did not read now read their status code.
    let deaf = subscribers.iter_mut().filter(|(_, reads, _)| !reads);
    let codes: Vec<_> = deaf.filter_map(|(stream, ..)| code(stream)).collect();
    let deaf = codes.iter().filter(|code| **code == 200).count();
    assert_eq!(served + deaf, 128, "{served} and {deaf}");
    drop(subscribers);
    leader.relieved();
}
