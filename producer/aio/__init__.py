"""The producer for asyncio: `AsyncKafkaProducer`, a face of the same engine as `KafkaProducer`.

Theory of operation. The sender thread, the accumulator and the metadata are `KafkaProducer`'s. What that class does by
blocking, this one does by awaiting:

- A record whose topic is known and whose batch has room is appended immediately, on the event loop's thread.
- A record of an unknown topic waits in the line of its topic (`waiting.TopicLine`). One task per line requests the
  metadata and is woken by the metadata's latch.
- A record without memory waits in the loop's line for memory (`waiting.MemoryLine`), which has one place in the buffer
  pool's line, among the threads that wait. The pool's grant wakes the loop, which appends the waiting records in order.
- `send_and_wait` returns a coroutine that is also a future (`sends_cy.AwaitedSend`), so that `asyncio.gather` needs no
  task per record. It begins where a task would.
- A future that is awaited registers with its batch (`futures_cy.Completions`). The sender thread reports a completed
  batch with one append to a deque, and wakes the loop only if it isn't awake already.

Objects of one event loop are touched by its thread only. Other threads reach them through ``call_soon_threadsafe``,
and find out there if the loop has been closed. No turn of the loop does more than a slice of the work that waits.
`send_arrow`, `send_many` and `stop` have blocking parts, which run on one thread per producer that starts on first use.
"""
