use std::sync::Mutex;

use super::*;

#[test]
fn all_works_are_done_and_the_slowest_counts() {
    let done = Mutex::new(Vec::new());
    let took = at_once(vec![1, 30, 2], |work| {
        thread::sleep(Duration::from_millis(work));
        done.lock().expect("lock").push(work);
        Ok(())
    });
    assert!(took.expect("time") >= Duration::from_millis(30));
    let mut done = done.into_inner().expect("lock");
    done.sort_unstable();
    assert_eq!(done, [1, 2, 30]);
}

#[test]
fn an_error_of_any_thread_is_the_error() {
    for bad in 0..3 {
        let error =
            at_once(vec![0, 1, 2], |work| if work == bad { Err(anyhow!("work {work}")) } else { Ok(()) });
        assert_eq!(error.expect_err("error").to_string(), format!("work {bad}"));
    }
    assert!(at_once(Vec::<u8>::new(), |_| Ok(())).is_ok());
}
