// The record of what a process captured and lost, sealed when the process has ended.
#ifndef AIT_PROBE_LEDGER_H
#define AIT_PROBE_LEDGER_H

#include <cstdint>
#include <string>

#include "append_file.h"
#include "directories.h"

namespace ait {

class JsonLine {
public:
    JsonLine &Text(const char *key, const std::string &value);
    JsonLine &Number(const char *key, int64_t value);
    JsonLine &Raw(const char *key, const std::string &json);
    std::string Braces() const { return "{" + text_ + "}"; }

private:
    std::string text_;
};

// "2026-11-21T11:00:00Z"
std::string UtcNow();

class Ledger {
public:
    Ledger(Directories &directories, int pid);

    // The first line. `device` may be empty where nothing has named it yet.
    void Start(const std::string &device, const JsonLine &facts);
    // Renames the file once a path tells the device.
    void SetDevice(const std::string &device);
    void Add(const JsonLine &line);
    // Lines are collected for some 16 KiB and written together, and at the latest here.
    void Flush();
    // The last line. Where the disk is full, it takes the room that was kept for it, and says how
    // many lines are missing.
    void Seal(const JsonLine &line);
    // True where there is disk space to say what becomes of the next file.
    bool HasRoom();

    std::string Path() const;

private:
    std::string HeaderLine() const;
    void Write(const std::string &line);
    int Reopen();
    void NoteRemoval();

    Directories &directories_;
    int pid_;
    std::string device_;
    std::string facts_;
    AppendFile file_;
    std::string waiting_; // lines that could not be written yet
    uint64_t lost_ = 0;   // lines that were too many to keep
    bool started_ = false;
    bool onlyHeader_ = false;
    bool headerOnDisk_ = false;
};

} // namespace ait

#endif
