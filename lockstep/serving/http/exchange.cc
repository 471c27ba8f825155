#include "lockstep/serving/http/exchange.h"

#include <utility>

#include "lockstep/base/log.h"

namespace lockstep::serving::http {
namespace {

void call(const std::function<void()>& callback) {
  try {
    callback();
  } catch (const std::exception& e) {
    log_error("http: a disconnect callback failed: {}", e.what());
  }
}

// What the handler holds. The exchange itself is shared with the connection, so the last of these to go is
// noticed here.
class HandlersResponder final : public Responder {
 public:
  HandlersResponder(std::shared_ptr<Exchange> exchange, std::shared_ptr<Mailbox> mailbox)
      : exchange_(std::move(exchange)), mailbox_(std::move(mailbox)) {}
  ~HandlersResponder() override {
    if (!is_answered_.load(std::memory_order_acquire)) push(Command::Kind::kAbandon, {}, nullptr);
  }

  void send(Response response) override {
    is_answered_.store(true, std::memory_order_release);
    push(Command::Kind::kSend, {}, std::make_unique<Response>(std::move(response)));
  }
  void start_stream(int status, std::string content_type, std::vector<Header> headers) override {
    push(Command::Kind::kStart, {},
         std::make_unique<Response>(Response{status, std::move(content_type), std::move(headers), {}}));
  }
  void write(std::string chunk) override { push(Command::Kind::kWrite, std::move(chunk), nullptr); }
  void finish() override {
    is_answered_.store(true, std::memory_order_release);
    push(Command::Kind::kFinish, {}, nullptr);
  }
  bool connected() const override { return exchange_->connected(); }
  void on_disconnect(std::function<void()> callback) override {
    exchange_->on_disconnect(std::move(callback));
  }

 private:
  void push(Command::Kind kind, std::string data, std::unique_ptr<Response> response) {
    if (exchange_->connected()) mailbox_->push({kind, exchange_, std::move(data), std::move(response)});
  }

  std::shared_ptr<Exchange> exchange_;
  std::shared_ptr<Mailbox> mailbox_;
  std::atomic<bool> is_answered_{false};
};

}  // namespace

void Exchange::on_disconnect(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (connected()) {
      if (!is_over_) callbacks_.push_back(std::move(callback));
      return;
    }
  }
  call(callback);
}

void Exchange::client_gone() {
  std::vector<std::function<void()>> callbacks;
  {
    const std::lock_guard lock(mutex_);
    connected_.store(false, std::memory_order_release);
    callbacks.swap(callbacks_);
  }
  for (const auto& callback : callbacks) call(callback);
}

void Exchange::complete() {
  std::vector<std::function<void()>> callbacks;  // destroyed unlocked: one may hold the last Responder
  const std::lock_guard lock(mutex_);
  is_over_ = true;
  callbacks.swap(callbacks_);
}

void Mailbox::push(Command command) {
  const std::lock_guard lock(mutex_);
  if (is_closed_) return;
  waiting_.push_back(std::move(command));
  if (waiting_.size() == 1) wake_();
}

void Mailbox::take(std::vector<Command>& batch) {
  const std::lock_guard lock(mutex_);
  batch.swap(waiting_);
}

void Mailbox::close() {
  std::vector<Command> dropped;
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  dropped.swap(waiting_);
}

std::shared_ptr<Responder> make_responder(std::shared_ptr<Exchange> exchange,
                                          std::shared_ptr<Mailbox> mailbox) {
  return std::make_shared<HandlersResponder>(std::move(exchange), std::move(mailbox));
}

}  // namespace lockstep::serving::http
