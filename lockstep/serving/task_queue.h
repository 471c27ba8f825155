#pragma once
// Threads that do tasks in the order in which they were pushed (one after another when there is one thread).
// The queue outlives whoever holds it: tasks pushed after close() are dropped, so an engine may push as late
// as it likes.
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace lockstep::serving {

class TaskQueue {
 public:
  using Task = std::function<void()>;

  // From any thread; never waits for a task.
  void push(Task task);
  // The next task; none once the queue is closed and empty.
  Task pop();
  // Tasks that wait are still done.
  void close();
  size_t size() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool is_closed_ = false;
};

// Owns the threads of one queue; the destructor closes it and waits for the tasks in it. An exception that a
// task lets out is logged.
class Workers {
 public:
  explicit Workers(int num_threads);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  const std::shared_ptr<TaskQueue>& queue() const { return queue_; }
  // What the destructor does, earlier.
  void stop();

 private:
  std::shared_ptr<TaskQueue> queue_ = std::make_shared<TaskQueue>();
  std::vector<std::thread> threads_;
};

}  // namespace lockstep::serving
