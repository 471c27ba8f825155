#include "lockstep/serving/task_queue.h"

#include <exception>
#include <utility>

#include "lockstep/base/log.h"

namespace lockstep::serving {
namespace {

void work(TaskQueue& queue) {
  while (const TaskQueue::Task task = queue.pop()) {
    try {
      task();
    } catch (const std::exception& e) {
      log_error("serving: a task failed: {}", e.what());
    }
  }
}

}  // namespace

void TaskQueue::push(Task task) {
  {
    const std::lock_guard lock(mutex_);
    if (is_closed_) return;
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
}

TaskQueue::Task TaskQueue::pop() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_closed_ || !tasks_.empty(); });
  if (tasks_.empty()) return nullptr;
  Task task = std::move(tasks_.front());
  tasks_.pop_front();
  return task;
}

void TaskQueue::close() {
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
  }
  changed_.notify_all();
}

size_t TaskQueue::size() const {
  const std::lock_guard lock(mutex_);
  return tasks_.size();
}

Workers::Workers(int num_threads) {
  for (int i = 0; i < num_threads; ++i) threads_.emplace_back([queue = queue_] { work(*queue); });
}

Workers::~Workers() { stop(); }

void Workers::stop() {
  queue_->close();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

}  // namespace lockstep::serving
