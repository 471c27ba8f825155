#include "lockstep/serving/tokenizer/workspace.h"

#include <utility>

namespace lockstep::serving::tokenizing {

WorkspacePool::Lease::Lease(WorkspacePool& pool, std::unique_ptr<Workspace> workspace)
    : pool_(pool), workspace_(std::move(workspace)) {}

WorkspacePool::Lease::~Lease() {
  const std::lock_guard lock(pool_.mutex_);
  if (pool_.idle_.size() < kMaxPooled) pool_.idle_.push_back(std::move(workspace_));
}

WorkspacePool::Lease WorkspacePool::take() {
  std::unique_ptr<Workspace> workspace;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      workspace = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!workspace) workspace = std::make_unique<Workspace>();
  return {*this, std::move(workspace)};
}

}  // namespace lockstep::serving::tokenizing
